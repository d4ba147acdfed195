// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package trusttest makes certificates for tests, in the forms that kubelets and API servers have. Inputs are names and
// dates, outputs PEM. It is imported by tests only.
package trusttest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Pair is a certificate with its key, and everything that stands in its file.
type Pair struct {
	// Cert is PEM: the certificate, then its authority, as in the kubelet's kubelet.crt.
	Cert []byte
	// Authority is PEM of the authority alone.
	Authority []byte
	Key       []byte
}

// SelfSigned makes an authority and a certificate for name (a DNS name or an address), as the kubelet does when nobody
// gives it one (client-go/util/cert GenerateSelfSignedCertKey): the certificate is no authority, its file holds both.
func SelfSigned(t testing.TB, name string, from, until time.Time) Pair {
	t.Helper()
	authorityKey, leafKey := newKey(t), newKey(t)
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name + "-ca"}, NotBefore: from, NotAfter: until,
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		leaf.IPAddresses = []net.IP{ip}
	} else {
		leaf.DNSNames = []string{name}
	}
	top := sign(t, authority, authority, &authorityKey.PublicKey, authorityKey)
	own := sign(t, leaf, authority, &leafKey.PublicKey, authorityKey)
	key, err := x509.MarshalECPrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{
		Cert: append(bytes.Clone(own), top...), Authority: top,
		Key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key}),
	}
}

// TLS is the pair for a server or client.
func (p Pair) TLS(t testing.TB) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, cert, parent *x509.Certificate, public *ecdsa.PublicKey, by *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, public, by)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
