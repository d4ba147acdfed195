// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// Keys of the Secret. ca.crt can hold several certificates, the newest first; the keys of those that may still sign are in
// ca.key in the same order.
const (
	keyCACert = "ca.crt"
	keyCAKey  = "ca.key"
	keyCert   = "tls.crt"
	keyKey    = "tls.key"
)

// authority is a certificate authority and its key, nil when it is not ours to sign with.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// bundle is what the Secret holds.
type bundle struct {
	// authorities, newest first.
	authorities []authority
	// serving certificate and its key.
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

const (
	typeCert = "CERTIFICATE"
	typeKey  = "EC PRIVATE KEY"
	// maxBundle bounds what is read of a Secret's key.
	maxBundle = 64 << 10
)

// parseBundle reads the Secret. What cannot be read is an error: it is made anew then.
func parseBundle(data map[string][]byte) (*bundle, error) {
	certs, err := parseCerts(data[keyCACert])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyCACert, err)
	}
	keys, err := parseKeys(data[keyCAKey])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyCAKey, err)
	}
	serving, err := parseCerts(data[keyCert])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyCert, err)
	}
	own, err := parseKeys(data[keyKey])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyKey, err)
	}
	if len(certs) == 0 || len(serving) != 1 || len(own) != 1 {
		return nil, fmt.Errorf("%d authorities, %d certificates, %d keys: want some, one, one", len(certs), len(serving), len(own))
	}
	b := &bundle{cert: serving[0], key: own[0]}
	if !own[0].PublicKey.Equal(serving[0].PublicKey) {
		return nil, errors.New("the key is not the certificate's")
	}
	for _, c := range certs {
		a := authority{cert: c}
		for _, k := range keys {
			if k.PublicKey.Equal(c.PublicKey) {
				a.key = k
			}
		}
		b.authorities = append(b.authorities, a)
	}
	return b, nil
}

func parseCerts(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	err := eachBlock(text, typeCert, func(der []byte) error {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("certificate %d: %w", len(out), err)
		}
		out = append(out, c)
		return nil
	})
	return out, err
}

func parseKeys(text []byte) ([]*ecdsa.PrivateKey, error) {
	var out []*ecdsa.PrivateKey
	err := eachBlock(text, typeKey, func(der []byte) error {
		k, err := x509.ParseECPrivateKey(der)
		if err != nil {
			return fmt.Errorf("key %d cannot be read", len(out)) // the cause could quote it
		}
		out = append(out, k)
		return nil
	})
	return out, err
}

// eachBlock calls f for each PEM block; another type of block is an error.
func eachBlock(text []byte, kind string, f func(der []byte) error) error {
	if len(text) > maxBundle {
		return fmt.Errorf("%d bytes, at most %d are read", len(text), maxBundle)
	}
	for rest := bytes.TrimSpace(text); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return errors.New("not PEM")
		}
		if block.Type != kind {
			return fmt.Errorf("a PEM block is no %s", kind)
		}
		if err := f(block.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// data is what is stored.
func (b *bundle) data() (map[string][]byte, error) {
	var caKeys []byte
	for _, a := range b.authorities {
		if a.key == nil {
			continue
		}
		text, err := keyPEM(a.key)
		if err != nil {
			return nil, err
		}
		caKeys = append(caKeys, text...)
	}
	key, err := keyPEM(b.key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{keyCACert: b.roots(), keyCAKey: caKeys, keyCert: certPEM(b.cert), keyKey: key}, nil
}

// roots is the caBundle: every authority, so that a server that still has the older certificate is trusted too.
func (b *bundle) roots() []byte {
	var out []byte
	for _, a := range b.authorities {
		out = append(out, certPEM(a.cert)...)
	}
	return out
}

// pair is what the TLS server presents.
func (b *bundle) pair() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{b.cert.Raw}, PrivateKey: b.key, Leaf: b.cert}
}

func certPEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: typeCert, Bytes: c.Raw})
}

func keyPEM(k *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		return nil, errors.New("encode key")
	}
	return pem.EncodeToMemory(&pem.Block{Type: typeKey, Bytes: der}), nil
}
