// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package certs

import (
	"bytes"
	"crypto/x509"
	"strings"
	"testing"
	"time"
)

const host = "koordinator-webhook-service.koordinator-system.svc"

func names() []string { return []string{host} }

// trusts reports why a client with these roots would not talk to the bundle's server at a time.
func trusts(roots []byte, b *bundle, at time.Time) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	_, err := b.cert.Verify(x509.VerifyOptions{Roots: pool, DNSName: host, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}

func start() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }

// must is renewed, read back from what would be stored.
func must(t *testing.T, was *bundle, now time.Time, hosts ...string) (*bundle, string) {
	t.Helper()
	b, why, err := renewed(was, now, hosts)
	if err != nil {
		t.Fatal(err)
	}
	data, err := b.data()
	if err != nil {
		t.Fatal(err)
	}
	if b, err = parseBundle(data); err != nil {
		t.Fatal(err)
	}
	return b, why
}

// TestTwelveYears looks every two days for twelve years, and every twenty minutes after a change. Whoever has the roots of the look before trusts the certificate of
// this one, and who has this look's roots trusts the certificate of the look before, with clocks up to an hour apart.
func TestTwelveYears(t *testing.T) {
	t.Parallel()
	now := start()
	b, why := must(t, nil, now, host)
	if !strings.Contains(why, "no authority") || !strings.Contains(why, "no certificate") {
		t.Fatalf("first: %s", why)
	}
	serving, authorities, closely := 0, 0, 9
	for end := now.AddDate(12, 0, 0); now.Before(end); closely-- {
		if closely > 0 {
			now = now.Add(20 * time.Minute)
		} else {
			now = now.Add(47*time.Hour + 13*time.Minute)
		}
		next, why := must(t, b, now, host)
		for _, clock := range []time.Duration{-59 * time.Minute, 0, 59 * time.Minute} {
			if err := trusts(b.roots(), next, now.Add(clock)); err != nil {
				t.Fatalf("%s (%s): the new certificate with the old roots, clock %s: %v", now, why, clock, err)
			}
			if err := trusts(next.roots(), b, now.Add(clock)); err != nil && now.Before(b.cert.NotAfter) {
				t.Fatalf("%s (%s): the old certificate with the new roots, clock %s: %v", now, why, clock, err)
			}
		}
		if why != "" {
			closely = 9
		}
		if !next.cert.Equal(b.cert) {
			serving++
		}
		if !next.authorities[0].cert.Equal(b.authorities[0].cert) {
			authorities++
		}
		if len(next.authorities) > 2 {
			t.Fatalf("%s: %d authorities", now, len(next.authorities))
		}
		if same := next.cert.Equal(b.cert) && bytes.Equal(next.roots(), b.roots()); same != (why == "") {
			t.Fatalf("%s: changed %v, reason %q", now, !same, why)
		}
		b = next
	}
	if serving < 16 || serving > 20 { // every eight months
		t.Errorf("%d serving certificates in twelve years", serving)
	}
	if authorities != 1 || len(b.authorities) != 1 {
		t.Errorf("%d new authorities in twelve years, want 1 after eight; %d are left, want 1 since ten", authorities, len(b.authorities))
	}
}

// TestAwayForMonths: a manager that was stopped finds its certificate valid, or makes it anew at once.
func TestAwayForMonths(t *testing.T) {
	t.Parallel()
	first, _ := must(t, nil, start(), host)
	for months, want := range map[int]string{7: "", 9: "ends", 14: "ends", 119: "ends"} {
		now := start().AddDate(0, months, 0)
		b, why := must(t, first, now, host)
		if want == "" != (why == "") || !strings.Contains(why, want) {
			t.Errorf("%d months: %q, want %q", months, why, want)
		}
		if err := trusts(b.roots(), b, now); err != nil {
			t.Errorf("%d months: %v", months, err)
		}
	}
	now := start().AddDate(11, 0, 0) // the authority has ended
	b, why := must(t, first, now, host)
	if err := trusts(b.roots(), b, now); err != nil || !strings.Contains(why, "no authority") || len(b.authorities) != 1 {
		t.Errorf("after eleven years: %q, %v, %d authorities", why, err, len(b.authorities))
	}
}

// TestBothAtOnce: when authority and certificate near their end at one look, the old authority signs once more, for nobody has
// the new one yet.
func TestBothAtOnce(t *testing.T) {
	t.Parallel()
	first, _ := must(t, nil, start(), host)
	before, _ := must(t, first, start().AddDate(7, 11, 0), host)
	now := start().AddDate(8, 8, 0)
	b, why := must(t, before, now, host)
	if len(b.authorities) != 2 || b.cert.Equal(before.cert) {
		t.Fatalf("%d authorities, %q", len(b.authorities), why)
	}
	if err := trusts(before.roots(), b, now); err != nil {
		t.Errorf("who has the old roots: %v", err)
	}
	b, _ = must(t, b, start().AddDate(9, 5, 0), host)
	if err := b.cert.CheckSignatureFrom(b.authorities[0].cert); err != nil {
		t.Errorf("the new authority does not sign: %v", err)
	}
}

func TestClocks(t *testing.T) {
	t.Parallel()
	// A replica whose clock is half an hour ahead made it: it is as good as ours.
	ahead, _ := must(t, nil, start().Add(30*time.Minute), host)
	if _, why := must(t, ahead, start(), host); why != "" {
		t.Errorf("half an hour ahead: %q", why)
	}
	if err := trusts(ahead.roots(), ahead, start()); err != nil {
		t.Errorf("half an hour ahead: %v", err)
	}
	// A clock that was years ahead: nobody trusts it, so it is replaced, and the clock that was wrong accepts that.
	far, _ := must(t, nil, start().AddDate(3, 0, 0), host)
	b, why := must(t, far, start(), host)
	if err := trusts(b.roots(), b, start()); err != nil || why == "" {
		t.Errorf("years ahead: %q, %v", why, err)
	}
	if again, why := must(t, b, start().Add(3*time.Hour), host); why != "" {
		t.Errorf("a clock three hours ahead replaces it again: %q, %v", why, again.cert.NotBefore)
	}
}

func TestRenewedFor(t *testing.T) {
	t.Parallel()
	good, _ := must(t, nil, start(), host)
	other, _ := must(t, nil, start(), host)
	for name, c := range map[string]struct {
		was   *bundle
		hosts []string
		why   string
		keeps bool // the authority
	}{
		"nothing to do":   {good, names(), "", true},
		"another name":    {good, []string{host, "127.0.0.1", "manager.example.com"}, "for 127.0.0.1", true},
		"another signer":  {&bundle{authorities: good.authorities, cert: other.cert, key: other.key}, names(), "not trusted", true},
		"no key to sign":  {&bundle{authorities: []authority{{cert: good.authorities[0].cert}}, cert: good.cert, key: good.key}, names(), "no authority that can sign", false},
		"not authorities": {&bundle{authorities: []authority{{cert: good.cert, key: good.key}}, cert: good.cert, key: good.key}, names(), "no authority that can sign", false},
	} {
		now := start().Add(time.Minute)
		b, why := must(t, c.was, now, c.hosts...)
		if c.why == "" && why != "" || !strings.Contains(why, c.why) {
			t.Errorf("%s: %q, want %q", name, why, c.why)
		}
		if err := trusts(b.roots(), b, now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, h := range c.hosts {
			if err := b.cert.VerifyHostname(h); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if kept := b.authorities[0].cert.Equal(good.authorities[0].cert); kept != c.keeps {
			t.Errorf("%s: authority kept: %v", name, kept)
		}
	}
}

func FuzzBundle(f *testing.F) {
	b, _, err := renewed(nil, start(), names())
	if err != nil {
		f.Fatal(err)
	}
	data, err := b.data()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[keyCACert], data[keyCAKey], data[keyCert], data[keyKey])
	f.Add(data[keyCert], data[keyKey], data[keyCert], data[keyKey])
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte{}, data[keyCert], data[keyKey])
	f.Fuzz(func(t *testing.T, caCert, caKey, cert, key []byte) {
		b, err := parseBundle(map[string][]byte{keyCACert: caCert, keyCAKey: caKey, keyCert: cert, keyKey: key})
		if err != nil {
			if b != nil {
				t.Error("a bundle with an error")
			}
			return
		}
		next, _, err := renewed(b, start(), names())
		if err != nil {
			t.Fatal(err)
		}
		if err := trusts(next.roots(), next, start()); err != nil {
			t.Errorf("what was made of it is not trusted: %v", err)
		}
	})
}
