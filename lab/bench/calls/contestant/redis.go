package contestant

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

// Redis is the configuration of a client: the address of a Redis server and how to dial it.
type Redis = *redis.Options

// RedisAlways claims the key in Redis with SET NX, runs the plain transaction on Postgres, and
// stores the response in Redis. With appendfsync=always, Redis writes its log to disk before each
// answer.
//
// Postgres and Redis cannot commit together. A crash after the commit leaves an effect without a
// response. The key stays locked until its lease of 30 seconds ends, and then the request is
// executed again. Duplicates are refused while the key is locked. The payload is not compared.
var RedisAlways = Contestant{Name: "Redis SET NX, always", Open: openRedis("always")}

// RedisEverySecond works like RedisAlways, with a Redis that writes its log to disk once a second,
// which is the default. A crash of the machine loses the keys of the last second, and their
// requests are executed again.
var RedisEverySecond = Contestant{Name: "Redis SET NX, everysec", Open: openRedis("everysec")}

func openRedis(fsync string) func(context.Context, Place) (Do, error) {
	return func(ctx context.Context, place Place) (Do, error) {
		options, err := place.Redis(fsync)
		if err != nil {
			return nil, err
		}
		client := redis.NewClient(options)
		place.Cleanup(func() { _ = client.Close() })
		return redisRunner{place.Pool, client}.do, client.Ping(ctx).Err()
	}
}

type redisRunner struct {
	pool   *pgxpool.Pool
	client *redis.Client
}

const (
	redisLease = 30 * time.Second
	redisTTL   = 24 * time.Hour
	inProgress = ""
)

func (r redisRunner) do(ctx context.Context, call Call) (Answer, error) {
	key := Scope + "/" + call.Key
	err := r.client.SetArgs(ctx, key, inProgress, redis.SetArgs{Mode: "NX", TTL: redisLease}).Err()
	if errors.Is(err, redis.Nil) {
		return r.replay(ctx, key)
	}
	if err != nil {
		return Answer{}, err
	}
	if err := pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error { return call.Execute(ctx, tx) }); err != nil {
		r.client.Del(ctx, key)
		return Answer{}, err
	}
	return Answer{Body: call.Body}, r.client.Set(ctx, key, call.Body, redisTTL).Err()
}

func (r redisRunner) replay(ctx context.Context, key string) (Answer, error) {
	body, err := r.client.Get(ctx, key).Bytes()
	if errors.Is(err, redis.Nil) || err == nil && len(body) == 0 {
		return Answer{Refused: true}, nil
	}
	return Answer{Body: body, Replayed: true}, err
}
