// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package certs keeps the certificates by which API servers trust our webhooks: an authority of our own and a serving
// certificate in one Secret of our own namespace, renewed long before they end and without a restart, and the authorities as
// caBundle of our two webhook configurations.
//
// Input is the Secret and the time; what should be there is a pure function of both (renewed). Output is the Secret, the
// caBundles, and the certificate that the TLS server presents. Every replica does the same: the Secret's resource version
// decides who has renewed it, and the others take what is there. Keys and what they were read from are never logged. It may
// import controller-runtime; no other room of cluster.
package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// every is how often Secret and configurations are looked at, with three requests.
	every = 30 * time.Second
	// again is how soon after a failure.
	again = 5 * time.Second
	// attempts to store before the next look: another replica can be faster.
	attempts = 3
	owner    = client.FieldOwner("koord-manager")
)

// Options say where everything is.
type Options struct {
	// Namespace of Secret and Service.
	Namespace string
	// Secret that holds the certificates.
	Secret string
	// Service by which API servers call; the certificate is for SERVICE.NAMESPACE.svc.
	Service string
	// Hosts are further names and addresses that the certificate is for, where API servers call by URL.
	Hosts []string
	// Mutating and Validating name the webhook configurations whose caBundle is ours.
	Mutating, Validating string
}

// Keeper keeps the certificates. It is a Runnable for a manager.
type Keeper struct {
	options Options
	now     func() time.Time
	read    client.Reader
	write   client.Writer
	present atomic.Pointer[tls.Certificate]
}

// New makes a keeper, which presents nothing until it runs.
func New(o Options) *Keeper { return &Keeper{options: o, now: time.Now} }

// Configure makes a TLS server present the certificate of the moment.
func (k *Keeper) Configure(c *tls.Config) {
	c.MinVersion = tls.VersionTLS12
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if cert := k.present.Load(); cert != nil {
			return cert, nil
		}
		return nil, errors.New("no webhook certificate yet")
	}
}

// Add lets the manager run the keeper. It reads past the cache: a cache of Secrets would be one of them all.
func (k *Keeper) Add(mgr ctrl.Manager) error {
	k.read, k.write = mgr.GetAPIReader(), mgr.GetClient()
	if err := mgr.Add(k); err != nil {
		return fmt.Errorf("add the keeper of certificates: %w", err)
	}
	return nil
}

// NeedLeaderElection is false: every replica serves webhooks.
func (k *Keeper) NeedLeaderElection() bool { return false }

// Start looks after the certificates until ctx ends. An error is tried again, not returned: it would end the manager.
func (k *Keeper) Start(ctx context.Context) error {
	log := logf.FromContext(ctx).WithName("certs")
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		next := every
		if err := k.step(logf.IntoContext(ctx, log)); err != nil && ctx.Err() == nil {
			log.Error(err, "webhook certificates are not in order")
			next = again
		}
		timer.Reset(next)
	}
}

// step takes or renews the Secret, presents its certificate, and publishes its authorities.
func (k *Keeper) step(ctx context.Context) error {
	b, err := k.settle(ctx)
	if err != nil {
		return err
	}
	k.present.Store(b.pair())
	return k.publish(ctx, b.roots())
}

// settle brings the Secret in order and returns what it holds.
func (k *Keeper) settle(ctx context.Context) (*bundle, error) {
	for range attempts {
		b, err := k.tryRenew(ctx)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return b, err
		}
	}
	return nil, fmt.Errorf("store Secret %s/%s: somebody else writes it again and again", k.options.Namespace, k.options.Secret)
}

func (k *Keeper) tryRenew(ctx context.Context) (*bundle, error) {
	log := logf.FromContext(ctx)
	name := k.options.Namespace + "/" + k.options.Secret
	secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.options.Namespace, Name: k.options.Secret}}
	err := k.read.Get(ctx, client.ObjectKeyFromObject(&secret), &secret)
	exists := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read Secret %s: %w", name, err)
	}
	var was *bundle
	if exists && len(secret.Data) > 0 {
		if was, err = parseBundle(secret.Data); err != nil {
			log.Info("the Secret is made anew, because it cannot be read", "secret", name, "reason", err.Error())
		}
	}
	b, why, err := renewed(was, k.now(), k.names())
	if err != nil {
		return nil, fmt.Errorf("make webhook certificates: %w", err)
	}
	if why == "" {
		return b, nil
	}
	data, err := b.data()
	if err != nil {
		return nil, fmt.Errorf("encode webhook certificates: %w", err)
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	maps.Copy(secret.Data, data)
	if exists {
		err = k.write.Update(ctx, &secret, owner)
	} else {
		err = k.write.Create(ctx, &secret, owner)
	}
	if err != nil {
		return nil, fmt.Errorf("store Secret %s: %w", name, err)
	}
	log.Info("webhook certificates renewed", "secret", name, "reason", why, "until", b.cert.NotAfter)
	return b, nil
}

// names are those that the certificate is for.
func (k *Keeper) names() []string {
	return append([]string{k.options.Service + "." + k.options.Namespace + ".svc"}, k.options.Hosts...)
}
