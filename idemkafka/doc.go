package idemkafka
