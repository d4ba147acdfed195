// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package trusttest_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/trust/trusttest"
)

func pool(t *testing.T, text []byte) *x509.CertPool {
	t.Helper()
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(text) {
		t.Fatalf("no certificate in %q", text)
	}
	return p
}

// TestSelfSigned: the certificate is for its name, its dates and its authority only, and its file holds both.
func TestSelfSigned(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	until := from.Add(time.Hour)
	stranger := trusttest.SelfSigned(t, "node-001", from, until)
	for name, other := range map[string]string{"node-001": "node-002", "192.0.2.7": "192.0.2.8"} {
		pair := trusttest.SelfSigned(t, name, from, until)
		block, rest := pem.Decode(pair.Cert)
		if block == nil || !bytes.Equal(rest, pair.Authority) {
			t.Fatalf("%s: the file is not the certificate and its authority:\n%s", name, pair.Cert)
		}
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if leaf.IsCA {
			t.Errorf("%s is an authority itself", name)
		}
		for what, c := range map[string]struct {
			roots []byte
			name  string
			at    time.Time
			ok    bool
		}{
			"as made":         {pair.Authority, name, from.Add(time.Minute), true},
			"another name":    {pair.Authority, other, from.Add(time.Minute), false},
			"too early":       {pair.Authority, name, from.Add(-time.Minute), false},
			"too late":        {pair.Authority, name, until.Add(time.Minute), false},
			"another's trust": {stranger.Authority, name, from.Add(time.Minute), false},
		} {
			_, err := leaf.Verify(x509.VerifyOptions{Roots: pool(t, c.roots), DNSName: c.name, CurrentTime: c.at})
			if (err == nil) != c.ok {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
}

// TestTLS: two peers with such pairs take each other for what they are.
func TestTLS(t *testing.T) {
	t.Parallel()
	now := time.Now()
	server := trusttest.SelfSigned(t, "node-001", now.Add(-time.Hour), now.Add(time.Hour))
	client := trusttest.SelfSigned(t, "koordlet", now.Add(-time.Hour), now.Add(time.Hour))
	here, there := net.Pipe()
	a := tls.Client(here, &tls.Config{RootCAs: pool(t, server.Authority), ServerName: "node-001", Certificates: []tls.Certificate{client.TLS(t)}})
	b := tls.Server(there, &tls.Config{
		Certificates: []tls.Certificate{server.TLS(t)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool(t, client.Authority),
	})
	done := make(chan error, 1)
	go func() {
		_, err := b.Write([]byte("hello"))
		done <- err
	}()
	got := make([]byte, len("hello"))
	if _, err := io.ReadFull(a, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	here.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	there.Close()
	if peers := b.ConnectionState().PeerCertificates; len(peers) == 0 || peers[0].Subject.CommonName != "koordlet" {
		t.Errorf("the server sees %d certificates", len(peers))
	}
}
