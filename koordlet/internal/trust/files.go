// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package trust

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
)

// Bounds of the files.
const (
	maxPEM   = 1 << 20
	maxToken = 64 << 10
)

// Stamp tells one content of a file from the next without reading it. Rotations rename or swap a symbolic link, so the
// inode changes even within one tick of the file system's clock.
type Stamp struct {
	inode, device uint64
	size          int64
	modified      time.Time
}

// StampOf is a file's; one that cannot be seen has the zero stamp.
func StampOf(path string) (out Stamp) {
	info, err := os.Stat(path)
	if err != nil {
		return out
	}
	out.size, out.modified = info.Size(), info.ModTime()
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		out.inode, out.device = s.Ino, uint64(s.Dev)
	}
	return out
}

// stamps are those of every file of a client, in the order of Options.
type stamps [4]Stamp

// tokenFile is the place of the token's stamp.
const tokenFile = 1

// look stamps the files.
func (c *Client) look() (out stamps) {
	for i, path := range [...]string{c.o.CAFile, c.o.TokenFile, c.o.CertFile, c.o.KeyFile} {
		if path != "" {
			out[i] = StampOf(path)
		}
	}
	return out
}

// anchored reports that the file of the anchors was there.
func (s stamps) anchored() bool { return s[0] != Stamp{} }

// named are the options without files that may lack and do, and did so when they were last read: one that goes while it is in use is being
// replaced.
func (c *Client) named(now stamps) Options {
	o := c.o
	for i, path := range [...]*string{&o.CAFile, &o.TokenFile} {
		if o.MayLack && now[i] == (Stamp{}) && (c.state == nil || c.state.stamps[i] == (Stamp{})) {
			*path = ""
		}
	}
	return o
}

// tlsConfig is the trust and, with a client certificate, the identity.
func (o *Options) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
	if o.SkipVerify {
		config.InsecureSkipVerify = true // asked for explicitly, see Weakness
	} else if err := o.roots(config); err != nil {
		return nil, err
	}
	cert, err := either(o.CertFile, o.Cert, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("read client certificate: %w", err)
	}
	key, err := either(o.KeyFile, o.Key, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("read client key: %w", err)
	}
	if len(cert) == 0 {
		return config, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read client certificate: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// roots reads the anchors.
func (o *Options) roots(config *tls.Config) error {
	data, err := either(o.CAFile, o.CA, maxPEM)
	if err != nil {
		return fmt.Errorf("read trust anchor: %w", err)
	}
	if len(data) == 0 && o.CAFile == "" {
		return nil
	}
	pool, pinned, err := anchors(data)
	if err != nil {
		return fmt.Errorf("read trust anchor %s: %w", o.CAFile, err)
	}
	config.RootCAs = pool
	if pinned != nil {
		config.ServerName = cmp.Or(nameOf(pinned), config.ServerName)
		config.Time = func() time.Time { return within(time.Now(), pinned) }
	}
	return nil
}

// nameOf is what a certificate is for: a kubelet's own carries the node's name while we dial an address.
func nameOf(cert *x509.Certificate) string {
	switch {
	case len(cert.DNSNames) > 0:
		return cert.DNSNames[0]
	case len(cert.IPAddresses) > 0:
		return cert.IPAddresses[0].String()
	}
	return ""
}

// within is now, held within a pinned certificate's dates: it is trusted because it is the one, and a kubelet goes on with
// a self-signed one that has expired.
func within(now time.Time, cert *x509.Certificate) time.Time {
	switch {
	case now.After(cert.NotAfter):
		return cert.NotAfter
	case now.Before(cert.NotBefore):
		return cert.NotBefore
	}
	return now
}

// anchors reads certificates. pinned is the only one that is no authority, if there is exactly one: the server's own.
func anchors(data []byte) (pool *x509.CertPool, pinned *x509.Certificate, err error) {
	pool = x509.NewCertPool()
	total, leaves := 0, 0
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, fmt.Errorf("parse certificate %d: %w", total+1, err)
		}
		total++
		pool.AddCert(cert)
		if !cert.IsCA {
			leaves++
			pinned = cert
		}
	}
	if total == 0 {
		return nil, nil, errors.New("no certificate in it")
	}
	if leaves != 1 {
		pinned = nil
	}
	return pool, pinned, nil
}

// readToken reads the bearer token; a file that is not there is no error for whoever has a certificate.
func (o *Options) readToken(certified bool) (string, error) {
	if o.TokenFile == "" {
		return o.Token, nil
	}
	data, err := read(o.TokenFile, maxToken)
	if certified && errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if !isToken(token) {
		return "", fmt.Errorf("read token %s: not a token", o.TokenFile)
	}
	return token, nil
}

// isToken reports that a text can stand in a header.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// either is the file's content, or the bytes without a file.
func either(path string, data []byte, limit int64) ([]byte, error) {
	if path == "" {
		return data, nil
	}
	return read(path, limit)
}

// read is a whole small file.
func read(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, fmt.Errorf("%s: more than %d bytes", path, limit)
	}
	return b.Bytes(), nil
}
