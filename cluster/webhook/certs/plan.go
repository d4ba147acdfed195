// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"time"
)

// Lifetimes. Nothing is renewed in a hurry, so that a manager that was away for weeks finds all of it in time.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	servingLife   = 365 * 24 * time.Hour
	// An authority is joined by the next one in its last two years, a serving certificate replaced in its last four months.
	authorityLast = 2 * servingLife
	servingLast   = servingLife / 3
	// skew is how far the clocks of this machine and the API servers' may be apart: certificates are valid this long before they
	// are made.
	skew = time.Hour
	// settle is how long an authority is published before it signs: until then every API server has it.
	settle = time.Hour
)

// renewed is the bundle that should be there at a time, and why it differs from what is there; "" when it does not. was is nil
// when there is none.
//
// Two steps keep every call trusted while several managers and API servers learn of it one after the other: a new authority is
// published first and signs an hour later, and an old one stays published until it ends. Only what cannot be used at all
// (none, unreadable, ended, of a clock far ahead) is replaced at once.
func renewed(was *bundle, now time.Time, names []string) (*bundle, string, error) {
	out := &bundle{}
	if was != nil {
		out.cert, out.key = was.cert, was.key
		for _, a := range was.authorities {
			if now.Before(a.cert.NotAfter) && a.cert.IsCA {
				out.authorities = append(out.authorities, a)
			}
		}
	}
	why, err := out.addAuthority(now)
	if err != nil {
		return nil, "", err
	}
	signer := signing(out.authorities, now)
	if reason := out.outdated(signer, now, names); reason != "" {
		why = append(why, reason)
		if out.cert, out.key, err = newServing(now, names, signer); err != nil {
			return nil, "", err
		}
		if out.verify(now, names) != nil && was != nil { // an authority that was not made here, and that clients do not accept
			return renewed(nil, now, names)
		}
	}
	if len(why) == 0 && len(out.authorities) != len(was.authorities) {
		why = append(why, "an authority has ended")
	}
	return out, strings.Join(why, ", "), nil
}

// addAuthority adds an authority where there is none that can sign, or none that will do so for long.
func (b *bundle) addAuthority(now time.Time) (why []string, err error) {
	signer := signing(b.authorities, now)
	switch {
	case signer == nil:
		why = append(why, "no authority that can sign")
	case !slices.ContainsFunc(b.authorities, func(a authority) bool { return a.key != nil && now.Add(authorityLast).Before(a.cert.NotAfter) }):
		why = append(why, "the authority ends "+signer.cert.NotAfter.UTC().Format(time.RFC3339))
	default:
		return nil, nil
	}
	a, err := newAuthority(now)
	if err != nil {
		return nil, err
	}
	b.authorities = slices.Insert(b.authorities, 0, a)
	return why, nil
}

// signing is the authority that lasts longest of those that have been published long enough, or else the oldest that can sign.
func signing(list []authority, now time.Time) *authority {
	var settled, oldest *authority
	for i := range list {
		a := &list[i]
		if a.key == nil || a.cert.NotBefore.After(now) {
			continue
		}
		if oldest == nil || a.cert.NotBefore.Before(oldest.cert.NotBefore) {
			oldest = a
		}
		published := a.cert.NotBefore.Add(skew)
		if !now.Before(published.Add(settle)) && (settled == nil || a.cert.NotAfter.After(settled.cert.NotAfter)) {
			settled = a
		}
	}
	if settled != nil {
		return settled
	}
	return oldest
}

// outdated says why the serving certificate must be replaced, "" when it need not.
func (b *bundle) outdated(signer *authority, now time.Time, names []string) string {
	if b.cert == nil {
		return "no certificate"
	}
	if now.Add(servingLast).After(b.cert.NotAfter) && b.cert.NotAfter.Before(signer.cert.NotAfter) {
		return "the certificate ends " + b.cert.NotAfter.UTC().Format(time.RFC3339)
	}
	if err := b.verify(now, names); err != nil {
		return "the certificate is not trusted: " + err.Error()
	}
	return ""
}

// verify checks the serving certificate as API servers do.
func (b *bundle) verify(now time.Time, names []string) error {
	pool := x509.NewCertPool()
	for _, a := range b.authorities {
		pool.AddCert(a.cert)
	}
	for _, name := range names {
		if _, err := b.cert.Verify(x509.VerifyOptions{
			Roots: pool, DNSName: name, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}); err != nil {
			return fmt.Errorf("for %s: %w", name, err)
		}
	}
	return nil
}

// newAuthority makes an authority.
func newAuthority(now time.Time) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, errors.New("make a key")
	}
	cert, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "koord-manager webhook authority"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, now.Add(-skew), now.Add(authorityLife), key, nil)
	return authority{cert: cert, key: key}, err
}

// newServing makes a serving certificate, which does not outlive its authority.
func newServing(now time.Time, names []string, by *authority) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, errors.New("make a key")
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "koord-manager webhook"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	end := now.Add(servingLife)
	if by.cert.NotAfter.Before(end) {
		end = by.cert.NotAfter
	}
	cert, err := sign(template, now.Add(-skew), end, key, by)
	return cert, key, err
}

// sign signs a certificate, with its own key when by is nil.
func sign(template *x509.Certificate, from, to time.Time, key *ecdsa.PrivateKey, by *authority) (*x509.Certificate, error) {
	serial := make([]byte, 16)
	if _, err := rand.Read(serial); err != nil {
		return nil, errors.New("make a serial number")
	}
	template.SerialNumber = new(big.Int).SetBytes(serial)
	template.NotBefore, template.NotAfter = from.UTC(), to.UTC()
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back a certificate: %w", err)
	}
	return cert, nil
}
