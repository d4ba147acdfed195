// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

const (
	secrets = "/api/v1/namespaces/" + system + "/secrets"
	hookKey = secrets + "/koordinator-webhook-certs"

	registrations = "/apis/admissionregistration.k8s.io/v1/"
	mutatingHooks = registrations + "mutatingwebhookconfigurations/koordinator-mutating-webhook-configuration"
	checkingHooks = registrations + "validatingwebhookconfigurations/koordinator-validating-webhook-configuration"
)

// The last part of a certificate's year in which the manager replaces it (docs/user/manager.md), and of an authority's ten years in which
// the next one joins it.
const (
	servingLast   = 365 * 24 * time.Hour / 3
	authorityLast = 2 * 365 * 24 * time.Hour
)

// ended are certificates of which both ended an hour ago.
func ended(t *testing.T) map[string]any {
	t.Helper()
	hourAgo := time.Now().Add(-time.Hour)
	return certificates(t, hourAgo, hourAgo)
}

// certificates are an authority and a serving certificate of it, a year old, which end at these times, as the manager's Secret has them.
func certificates(t *testing.T, authorityEnds, servingEnds time.Time) map[string]any {
	t.Helper()
	sign := func(template, parent *x509.Certificate, ends time.Time, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template.SerialNumber = big.NewInt(time.Now().UnixNano())
		template.NotBefore, template.NotAfter = time.Now().AddDate(-1, 0, 0), ends
		if parent == nil {
			parent, by = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	ca, caKey := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "the lab's authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, authorityEnds, nil)
	cert, key := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "the lab's"}, DNSNames: []string{"koordinator-webhook-service." + system + ".svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca, servingEnds, caKey)
	certText := func(c *x509.Certificate) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	}
	keyText := func(k *ecdsa.PrivateKey) []byte {
		der, err := x509.MarshalECPrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	}
	return map[string]any{"ca.crt": certText(ca), "ca.key": keyText(caKey), "tls.crt": certText(cert), "tls.key": keyText(key)}
}

// expireBefore leaves a Secret whose certificates have ended, as a manager finds it that was away for long.
func (m *managed) expireBefore(ctx context.Context, t *testing.T) {
	t.Helper()
	o := cluster.Object{"metadata": map[string]any{"name": "koordinator-webhook-certs"}, "type": "Opaque", "data": ended(t)}
	if _, err := m.c.Admin().Create(ctx, secrets, o); err != nil {
		t.Fatal(err)
	}
}

// stored is what a key of the manager's Secret holds.
func (m *managed) stored(ctx context.Context, key string) ([]byte, error) {
	o, err := m.c.Admin().Get(ctx, hookKey)
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(o.Str("data", key))
}

// serving is the first certificate under a key of the manager's Secret.
func (m *managed) serving(ctx context.Context, key string) (*x509.Certificate, error) {
	text, err := m.stored(ctx, key)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is no PEM", key)
	}
	return x509.ParseCertificate(block.Bytes)
}

// admits makes a pod of the profile as a trial and reports whether admission has made a batch pod of it. Whatever becomes of admission,
// the pod itself must not be refused, and not wait for long.
func (m *managed) admits(t *testing.T) bool {
	t.Helper()
	ok, err := m.trial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func (m *managed) trial(ctx context.Context) (admitted bool, err error) {
	o, err := cluster.ParseObject([]byte(podText("trial", "labels: {app: spark}", "", sparkMain)))
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second) // two webhooks of 3 s each, and an API server that may have no CPU
	defer cancel()
	if o, err = m.c.Admin().Create(ctx, strings.TrimSuffix(batchPods, "/")+"?dryRun=All", o); err != nil {
		return false, fmt.Errorf("a pod was held up by its admission: %w", err)
	}
	return o.Str("metadata", "labels", protocol.LabelQoSClass) == "BE", nil
}

// sound reports why admission is not in order: what the Secret holds must be valid now, published, and pods must be changed by it.
func (m *managed) sound(t *testing.T) error {
	t.Helper()
	cert, err := m.serving(t.Context(), "tls.crt")
	if err != nil {
		return err
	}
	if now := time.Now(); now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return fmt.Errorf("the certificate holds from %s to %s", cert.NotBefore, cert.NotAfter)
	}
	for _, path := range []string{mutatingHooks, checkingHooks} {
		o, err := m.c.Admin().Get(t.Context(), path)
		if err != nil {
			return err
		}
		roots, err := base64.StdEncoding.DecodeString(o.Str("webhooks", 0, "clientConfig", "caBundle"))
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(roots)
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool}); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if !m.admits(t) {
		return errors.New("the profile is not applied")
	}
	return nil
}

// expire: the certificates of a manager that runs have ended. Pods are made all the same, unchanged.
func (m *managed) expire(t *testing.T) {
	eventually(t, 60*time.Second, func() error { return m.sound(t) })
	// The manager can be faster than the API server's next look at the configurations; then they end once more.
	eventually(t, 30*time.Second, func() error {
		cert, err := m.serving(t.Context(), "tls.crt")
		if err != nil {
			return err
		}
		if time.Now().Before(cert.NotAfter) {
			data := ended(t)
			if _, err := m.c.Admin().Patch(t.Context(), hookKey, cluster.MergePatch, map[string]any{"data": data}); err != nil {
				return err
			}
			for _, path := range []string{mutatingHooks, checkingHooks} {
				if err := m.trustOnly(t.Context(), path, data["ca.crt"]); err != nil {
					return err
				}
			}
		}
		if m.admits(t) {
			return errors.New("a certificate that has ended is trusted")
		}
		return nil
	})
}

// trustOnly has the API server trust nothing but what roots sign.
func (m *managed) trustOnly(ctx context.Context, path string, roots any) error {
	o, err := m.c.Admin().Get(ctx, path)
	if err != nil {
		return err
	}
	list, _ := o["webhooks"].([]any)
	for i := range list {
		config, _ := o.At("webhooks", i, "clientConfig").(map[string]any)
		config["caBundle"] = roots
	}
	_, err = m.c.Admin().Update(ctx, path, o)
	return err
}

// renewed: the manager has seen it within its half minute, of which a busy machine makes a whole one, and admission works again, in the same process.
func (m *managed) renewed(t *testing.T) {
	begun := time.Now()
	promptly(t, 60*time.Second, func() error { return m.sound(t) })
	t.Logf("in order %s after it was looked at", time.Since(begun).Round(time.Millisecond))
}

// lostSecret: somebody deletes the Secret; it is made anew, see renewed.
func (m *managed) lostSecret(t *testing.T) {
	if err := m.c.Admin().Delete(t.Context(), hookKey, -1); err != nil {
		t.Fatal(err)
	}
}

// unadmitted: without any manager pods are made and started, unchanged; with one they are changed again.
func (m *managed) unadmitted(t *testing.T) {
	for _, r := range m.replicas {
		if r.runs() {
			r.kill(t)
		}
	}
	const small = "resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}"
	begun := time.Now()
	if _, err := m.c.Admin().Apply(t.Context(), "user", false, []byte(podText("alone", "labels: {app: spark}", "", small))); err != nil {
		t.Fatalf("without a manager: %v", err)
	}
	made := time.Since(begun)
	if pod := m.ready(t, "alone"); pod.Str("metadata", "labels", protocol.LabelQoSClass) != "" {
		t.Errorf("somebody has changed it: %s", pod.Compact("metadata", "labels"))
	}
	if made > 10*time.Second { // the better of two, since the API server may have had no CPU for one
		again := time.Now()
		m.admits(t)
		made = min(made, time.Since(again))
	}
	if made > 10*time.Second {
		t.Errorf("a pod was made after %s, want 10 s", made)
	}
	t.Logf("without a manager a pod is made in %s and runs after %s", made.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))
	m.replica(t)
	m.renewed(t)
}

// kill ends a replica as a crash does.
func (r *replica) kill(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-r.done
	r.killed = true
}

// hang stops a replica where it stands: its port takes connections, and nobody answers. What is returned has it go on.
func (r *replica) hang(t *testing.T) (goOn func()) {
	t.Helper()
	return hang(t, r.cmd.Process.Pid)
}

// hang stops a process where it stands.
func hang(t *testing.T, pid int) (goOn func()) {
	t.Helper()
	err := unix.Kill(pid, unix.SIGSTOP)
	if err == nil {
		err = unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED, nil) // one that computes goes on for a moment
	}
	if err != nil {
		t.Fatalf("stop process %d: %v", pid, err)
	}
	return func() { _ = unix.Kill(pid, unix.SIGCONT) } // a second one does nothing
}
