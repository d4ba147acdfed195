// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

func options() Options {
	return Options{
		Namespace: "koordinator-system", Secret: "koordinator-webhook-certs", Service: "koordinator-webhook-service",
		Mutating: "mutating", Validating: "validating",
	}
}

func configurations() []client.Object {
	port := int32(443)
	to := func() admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
			Namespace: "koordinator-system", Name: "koordinator-webhook-service", Port: &port,
		}}
	}
	seconds := int32(3)
	return []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "mutating"},
			Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "a.koordinator.sh", ClientConfig: to(), TimeoutSeconds: &seconds}},
		},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "validating"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{
				{Name: "b.koordinator.sh", ClientConfig: to(), TimeoutSeconds: &seconds}, {Name: "c.koordinator.sh", ClientConfig: to()},
			},
		},
	}
}

func keeper(c client.Client, now *time.Time) *Keeper {
	k := New(options())
	k.now = func() time.Time { return *now }
	k.read, k.write = c, c
	return k
}

// call asks the keeper's server over TLS as an API server with these roots would.
func call(t *testing.T, k *Keeper, roots []byte, at time.Time) error {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	server.TLS = &tls.Config{} //nolint:gosec // Configure sets the version
	k.Configure(server.TLS)
	server.Config.ErrorLog = nil
	server.StartTLS()
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: pool, ServerName: host, Time: func() time.Time { return at }, MinVersion: tls.VersionTLS12,
	}}}
	defer c.CloseIdleConnections()
	resp, err := c.Get(server.URL)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func published(t *testing.T, c client.Client) (roots []byte) {
	t.Helper()
	var m admissionregistrationv1.MutatingWebhookConfiguration
	var v admissionregistrationv1.ValidatingWebhookConfiguration
	for name, o := range map[string]client.Object{"mutating": &m, "validating": &v} {
		if err := c.Get(context.Background(), client.ObjectKey{Name: name}, o); err != nil {
			t.Fatal(err)
		}
	}
	roots = m.Webhooks[0].ClientConfig.CABundle
	if !bytes.Equal(roots, v.Webhooks[0].ClientConfig.CABundle) || !bytes.Equal(roots, v.Webhooks[1].ClientConfig.CABundle) {
		t.Error("the webhooks have different bundles")
	}
	if *m.Webhooks[0].TimeoutSeconds != 3 || m.Webhooks[0].ClientConfig.Service.Name != "koordinator-webhook-service" {
		t.Errorf("more than the bundle was written: %+v", m.Webhooks[0])
	}
	return roots
}

// TestKeepersAgree: two replicas start together, one makes the certificates, both present them; a year later one renews them
// while both serve.
func TestKeepersAgree(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	ctx := logf.IntoContext(t.Context(), funcr.New(func(p, a string) { log.WriteString(p + a + "\n") }, funcr.Options{Verbosity: 10}))
	c := fake.NewClientBuilder().WithObjects(configurations()...).Build()
	now := start()
	a, b := keeper(c, &now), keeper(c, &now)
	if err := call(t, a, nil, now); err == nil {
		t.Error("a server without a certificate answered")
	}
	for _, k := range []*Keeper{a, b} {
		if err := k.step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(a.present.Load().Leaf.Raw, b.present.Load().Leaf.Raw) {
		t.Error("the replicas present different certificates")
	}
	first := published(t, c)
	for _, k := range []*Keeper{a, b} {
		if err := call(t, k, first, now); err != nil {
			t.Error(err)
		}
	}
	now = now.AddDate(0, 10, 0)
	if err := b.step(ctx); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(a.present.Load().Leaf.Raw, b.present.Load().Leaf.Raw) {
		t.Error("nothing was renewed after ten months")
	}
	for _, k := range []*Keeper{a, b} {
		if err := call(t, k, published(t, c), now); err != nil {
			t.Errorf("while only one has renewed it: %v", err)
		}
	}
	if err := a.step(ctx); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.present.Load().Leaf.Raw, b.present.Load().Leaf.Raw) {
		t.Error("the other replica did not take the new certificate")
	}
	now = now.AddDate(8, 0, 0) // a new authority is added
	if err := a.step(ctx); err != nil {
		t.Fatal(err)
	}
	roots := published(t, c)
	if bytes.Equal(roots, first) {
		t.Error("the new authority was not published")
	}
	if err := call(t, a, roots, now); err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), "PRIVATE KEY") || !strings.Contains(log.String(), "renewed") {
		t.Errorf("log %s", log.String())
	}
}

// TestSomebodyIsFaster: the Secret that another replica has just written is taken, not fought over.
func TestSomebodyIsFaster(t *testing.T) {
	t.Parallel()
	now := start()
	under := fake.NewClientBuilder().WithObjects(configurations()...).Build()
	other := keeper(under, &now)
	creates := 0
	c := interceptor.NewClient(under, interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if creates++; creates == 1 {
				if err := other.step(ctx); err != nil {
					t.Error(err)
				}
			}
			return w.Create(ctx, o, opts...)
		},
	})
	k := keeper(c, &now)
	if err := k.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if creates != 1 || !bytes.Equal(k.present.Load().Leaf.Raw, other.present.Load().Leaf.Raw) {
		t.Errorf("%d creations, the certificates differ", creates)
	}
	// Always too late: an error, no endless loop.
	late := interceptor.NewClient(under, interceptor.Funcs{
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "x", errors.New("changed"))
		},
	})
	now = now.AddDate(1, 0, 0)
	if err := keeper(late, &now).step(t.Context()); err == nil || !strings.Contains(err.Error(), "again and again") {
		t.Errorf("always too late: %v", err)
	}
}

// TestSecretOfSomebodyElse: what cannot be read is made anew; keys that are not ours stay.
func TestSecretOfSomebodyElse(t *testing.T) {
	t.Parallel()
	now := start()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "koordinator-system", Name: "koordinator-webhook-certs"},
		Data:       map[string][]byte{"ca-cert.pem": []byte("upstream's"), keyCert: []byte("garbage")},
	}
	c := fake.NewClientBuilder().WithObjects(append(configurations(), secret)...).Build()
	k := keeper(c, &now)
	if err := k.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := call(t, k, published(t, c), now); err != nil {
		t.Error(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil || string(secret.Data["ca-cert.pem"]) != "upstream's" {
		t.Errorf("%v, %q", err, secret.Data["ca-cert.pem"])
	}
}

// TestConfigurationComesLater: without the configurations the server presents its certificate all the same, and says what is
// missing until they are there.
func TestConfigurationComesLater(t *testing.T) {
	t.Parallel()
	now := start()
	c := fake.NewClientBuilder().Build()
	k := keeper(c, &now)
	if err := k.step(t.Context()); err == nil || !strings.Contains(err.Error(), "mutating") || !strings.Contains(err.Error(), "validating") {
		t.Errorf("no configuration: %v", err)
	}
	if k.present.Load() == nil {
		t.Fatal("no certificate")
	}
	for _, o := range configurations() {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := call(t, k, published(t, c), now); err != nil {
		t.Error(err)
	}
}

// TestKeeperOutlivesRefusals: what the API server refuses, as it does before it has read its roles, ends nothing: five seconds later it
// is asked again.
func TestKeeperOutlivesRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := start()
		var asked atomic.Int32 // read here between the keeper's questions
		c := interceptor.NewClient(fake.NewClientBuilder().WithObjects(configurations()...).Build(), interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if asked.Add(1) <= 2 {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, key.Name, errors.New("no roles yet"))
				}
				return w.Get(ctx, key, o, opts...)
			},
		})
		k := keeper(c, &now)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- k.Start(ctx) }()
		time.Sleep(2*again - time.Second)
		synctest.Wait()
		if asked.Load() != 2 || k.present.Load() != nil {
			t.Errorf("asked %d times, certificate %t", asked.Load(), k.present.Load() != nil)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if k.present.Load() == nil {
			t.Errorf("no certificate after %d questions", asked.Load())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
