// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// turn is a renewal of the certificates that is waited for, and what became of admission meanwhile.
type turn struct {
	near        *x509.Certificate // that will be replaced
	authorities int               // published before
	stop        func()            // ends the trials
	excused     int               // trials that say nothing, see try; known once they have ended

	mu        sync.Mutex
	trials    int
	presented map[string]int // trials by the serial number of the certificate that a client was shown
	failed    []string
}

// nearIn is much more than the manager's half minute between two looks: what is near its end has to be presented, and tried, before it is so.
const nearIn = 90 * time.Second

// nearEnd: an authority and its certificate, both of which come into the last part of their time in nearIn, are in the Secret, as if other replicas
// had long used them. The manager that runs presents the certificate, and the API server trusts it. From now on pods are tried.
func (m *managed) nearEnd(t *testing.T) {
	at := time.Now().Add(nearIn)
	data := certificates(t, at.Add(authorityLast), at.Add(servingLast))
	was, err := m.stored(t.Context(), "ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	lab, _ := data["ca.crt"].([]byte)
	data["ca.crt"] = slices.Concat(lab, was) // by which API servers trust what is presented until then
	if _, err := m.c.Admin().Patch(t.Context(), hookKey, cluster.MergePatch, map[string]any{"data": data}); err != nil {
		t.Fatal(err)
	}
	m.turn = &turn{presented: map[string]int{}}
	if m.turn.near, err = m.serving(t.Context(), "tls.crt"); err != nil {
		t.Fatal(err)
	}
	eventually(t, nearIn, func() error { return errors.Join(m.presents(t.Context(), m.turn.near), m.sound(t)) })
	roots, err := m.roots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if m.turn.authorities = strings.Count(roots[0], "BEGIN CERTIFICATE"); m.turn.authorities < 2 {
		t.Errorf("%d authorities are published, want the lab's and the one before", m.turn.authorities)
	}
	ctx, cancel := context.WithCancel(m.outer.Context())
	var all sync.WaitGroup
	all.Go(func() { m.turn.try(ctx, m) })
	m.turn.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	m.outer.Cleanup(m.turn.stop)
}

// hookTimeout is how long an API server waits for the webhook that admits pods (packaging/manifests/webhook.yaml).
const hookTimeout = 3 * time.Second

// try makes pods until ctx ends, each beside a client that has just read what is published. A certificate that is not trusted is found so at once:
// a pod that was made without its admission after as long as this is waited for, while the client has trusted what it was shown, says that there was
// no CPU, and nothing of certificates. One in ten may be left out so (see inTime), which wants twenty of each certificate that are not.
func (r *turn) try(ctx context.Context, m *managed) {
	for {
		begun := time.Now()
		admitted, err := m.trial(ctx)
		took := time.Since(begun)
		roots, rootsErr := m.roots(ctx)
		leaf, tlsErr := shown(ctx, m.running().hooks, roots)
		if ctx.Err() != nil {
			return
		}
		if err = errors.Join(err, rootsErr, tlsErr); err == nil && !admitted {
			err = errors.New("a pod was made without its admission")
			if took >= hookTimeout {
				r.excused++
				continue
			}
		}
		r.became(begun, leaf, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// became notes what has become of a trial.
func (r *turn) became(begun time.Time, leaf *x509.Certificate, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trials++
	if err != nil {
		r.failed = append(r.failed, fmt.Sprintf("%s, %s: %v", begun.Format(time.TimeOnly), time.Since(begun).Round(time.Millisecond), err))
		return
	}
	r.presented[leaf.SerialNumber.String()]++
}

// failures are what has become of the trials that failed.
func (r *turn) failures() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.failed)
}

// with is how many trials have had this certificate.
func (r *turn) with(c *x509.Certificate) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.presented[c.SerialNumber.String()]
}

// running is the replica that pods are admitted by.
func (m *managed) running() *replica {
	for _, r := range m.replicas {
		if r.runs() {
			return r
		}
	}
	return &replica{hooks: "none runs"}
}

// roots are the authorities that are published, of each webhook.
func (m *managed) roots(ctx context.Context) (all []string, err error) {
	for _, path := range []string{mutatingHooks, checkingHooks} {
		o, err := m.c.Admin().Get(ctx, path)
		if err != nil {
			return nil, err
		}
		list, _ := o["webhooks"].([]any)
		for i := range list {
			text, err := base64.StdEncoding.DecodeString(o.Str("webhooks", i, "clientConfig", "caBundle"))
			if err != nil {
				return nil, fmt.Errorf("%s, webhook %d: %w", path, i, err)
			}
			all = append(all, string(text))
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no webhooks")
	}
	return all, nil
}

// shown is the certificate by which an address is trusted by clients with any of these roots.
func shown(ctx context.Context, address string, roots []string) (leaf *x509.Certificate, err error) {
	for _, text := range slices.Compact(slices.Clone(roots)) {
		if leaf, err = shownTo(ctx, address, text); err != nil {
			return nil, err
		}
	}
	return leaf, nil
}

func shownTo(ctx context.Context, address, roots string) (*x509.Certificate, error) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(roots))
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: soon}, Config: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// presents is an error unless every replica presents a certificate to a client that has the published roots.
func (m *managed) presents(ctx context.Context, want *x509.Certificate) error {
	roots, err := m.roots(ctx)
	if err != nil {
		return err
	}
	for _, r := range m.replicas {
		if !r.runs() {
			continue
		}
		got, err := shown(ctx, r.hooks, roots)
		if err != nil {
			return err
		}
		if !got.Equal(want) {
			return fmt.Errorf("%s presents a certificate that ends %s, want the one that ends %s", r.hooks, got.NotAfter, want.NotAfter)
		}
	}
	return nil
}

// inTime: the certificate was replaced months before its end and another authority has joined the one that comes to its end, in the process
// that was there before. No trial has failed, with the old certificate, with the new one, or in between; and an API server that has to connect anew does.
func (m *managed) inTime(t *testing.T) {
	near := m.turn.near
	var now *x509.Certificate
	eventually(t, 2*nearIn, func() (err error) {
		if now, err = m.serving(t.Context(), "tls.crt"); err == nil && now.Equal(near) {
			err = fmt.Errorf("the Secret still has the certificate that ends %s", near.NotAfter)
		}
		if err != nil {
			return err
		}
		return errors.Join(m.presents(t.Context(), now), m.sound(t))
	})
	renewedAt := time.Now()
	for _, r := range m.replicas {
		if err := r.alive(); err != nil {
			t.Error(err)
		}
	}
	if left := near.NotAfter.Sub(renewedAt); left < servingLast-2*nearIn {
		t.Errorf("it was replaced %s before its end", left)
	}
	if lasts := now.NotAfter.Sub(renewedAt); lasts < 2*servingLast {
		t.Errorf("the new one ends after %s", lasts)
	}
	inSecret, err := m.stored(t.Context(), "ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(inSecret), "BEGIN CERTIFICATE"); n != m.turn.authorities+1 {
		t.Errorf("%d authorities, want one more than the %d before", n, m.turn.authorities)
	}
	eventually(t, nearIn, func() error {
		roots, err := m.roots(t.Context())
		if i := slices.IndexFunc(roots, func(text string) bool { return text != string(inSecret) }); err == nil && i >= 0 {
			err = fmt.Errorf("webhook %d is called with\n%s\nthe Secret has\n%s", i, roots[i], inSecret)
		}
		return err
	})
	eventually(t, nearIn, func() error {
		if n := m.turn.with(now); n < 20 {
			return fmt.Errorf("%d trials with the new certificate, want 20; failed: %q", n, m.turn.failures())
		}
		return nil
	})
	m.turn.stop()
	if old, failed := m.turn.with(near), m.turn.failures(); len(failed) > 0 || old < 20 {
		t.Errorf("%d trials, %d of them with the old certificate, and these have failed: %q", m.turn.trials, old, failed)
	}
	if most := (m.turn.trials + m.turn.excused) / 10; m.turn.excused > max(lab.MostExcused, most) {
		t.Errorf("%d pods were made without admission after %s, and %d were tried besides: no more than one in ten may be", m.turn.excused, hookTimeout, m.turn.trials)
	}
	t.Logf("%d pods tried, %d with the old certificate, %d with the new one; %d more were made without admission after %s",
		m.turn.trials, m.turn.with(near), m.turn.with(now), m.turn.excused, hookTimeout)
	m.front.only(m.running())
	eventually(t, 20*time.Second, func() error {
		if !m.admits(t) {
			return errors.New("over a new connection no pod is admitted")
		}
		return nil
	})
	m.front.set(m.replicas)
}
