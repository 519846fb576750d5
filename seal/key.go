package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
)

// What is sealed begins with its format. The rest is XAES-256-GCM: a nonce of 24 bytes, the ciphertext and a tag. The first
// half of the nonce is what the key of this one message is derived with, the second half is that of AES-GCM.
const (
	format   = 1
	saltSize = 12
	begin    = 1 + saltSize
	overhead = begin + 12 + 16
)

// key seals and opens with one secret.
type key struct {
	block cipher.Block
	k1    [aes.BlockSize]byte // the subkey of CMAC for whole blocks
}

func newKey(secret []byte) *key {
	block, err := aes.NewCipher(secret)
	if err != nil {
		panic(err) // its length was checked
	}
	k := &key{block: block}
	block.Encrypt(k.k1[:], k.k1[:])
	var carry byte
	for i := len(k.k1) - 1; i >= 0; i-- {
		k.k1[i], carry = k.k1[i]<<1|carry, k.k1[i]>>7
	}
	k.k1[len(k.k1)-1] ^= carry * 0b10000111
	return k
}

// derive returns the cipher for one message: AES-GCM under a key that is made from salt by NIST SP 800-108 in counter mode,
// with CMAC.
func (k *key) derive(salt []byte) cipher.AEAD {
	var derived [2 * aes.BlockSize]byte
	for half := range 2 {
		block := derived[half*aes.BlockSize:][:aes.BlockSize]
		block[1], block[2] = byte(half+1), 'X'
		copy(block[4:], salt)
		subtle.XORBytes(block, block, k.k1[:])
		k.block.Encrypt(block, block)
	}
	block, err := aes.NewCipher(derived[:])
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return aead
}

func (k *key) seal(plain, bound []byte) []byte {
	sealed := make([]byte, begin, len(plain)+overhead)
	sealed[0] = format
	rand.Read(sealed[1:begin]) // never fails
	return k.derive(sealed[1:begin]).Seal(sealed, nil, plain, bound)
}

func (k *key) open(sealed, bound []byte) (plain []byte, ok bool) {
	if len(sealed) < overhead || sealed[0] != format {
		return nil, false
	}
	plain, err := k.derive(sealed[1:begin]).Open(nil, nil, sealed[begin:], bound)
	return plain, err == nil
}
