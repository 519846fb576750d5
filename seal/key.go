package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
)

// Sealed bytes begin with a format byte. The rest is XAES-256-GCM: a nonce of 24 bytes, the
// ciphertext and a tag. The first half of the nonce is the salt, from which the key of the message
// is derived. The second half is the nonce of AES-GCM.
const (
	format     = 1
	saltSize   = 12
	headerSize = 1 + saltSize
	overhead   = headerSize + 12 + 16
)

// key encrypts and decrypts with one secret.
type key struct {
	block cipher.Block
	k1    [aes.BlockSize]byte // the CMAC subkey K1, for input that consists of whole blocks
}

func newKey(secret []byte) *key {
	block, err := aes.NewCipher(secret)
	if err != nil {
		panic(err) // cannot happen: Keys.check has checked the length
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

// derive returns the cipher for one message: AES-GCM with a key that is derived from salt with NIST
// SP 800-108 in counter mode, with CMAC as the PRF.
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
	sealed := make([]byte, headerSize, len(plain)+overhead)
	sealed[0] = format
	rand.Read(sealed[1:headerSize]) // never returns an error
	return k.derive(sealed[1:headerSize]).Seal(sealed, nil, plain, bound)
}

func (k *key) open(sealed, bound []byte) (plain []byte, ok bool) {
	if len(sealed) < overhead || sealed[0] != format {
		return nil, false
	}
	plain, err := k.derive(sealed[1:headerSize]).Open(nil, nil, sealed[headerSize:], bound)
	return plain, err == nil
}
