// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package webhook puts the admission of koord-manager together: the TLS server, its certificates, and the webhooks of pods, evictions
// by agents, nodes, quotas, reservations, migration jobs and slo-controller-config.
//
// Input is a set of options, output a server for a manager and its runnables. The YAML that makes API servers call them is
// packaging/manifests/webhook.yaml. It may import the rooms below it and controller-runtime.
package webhook

import (
	"crypto/tls"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
	"github.com/koord-rt/koord-rt/cluster/webhook/certs"
	"github.com/koord-rt/koord-rt/cluster/webhook/configmap"
	"github.com/koord-rt/koord-rt/cluster/webhook/eviction"
	"github.com/koord-rt/koord-rt/cluster/webhook/node"
	"github.com/koord-rt/koord-rt/cluster/webhook/pod"
	"github.com/koord-rt/koord-rt/cluster/webhook/quota"
	"github.com/koord-rt/koord-rt/cluster/webhook/reservation"
)

// Names and port of Koordinator's installation.
const (
	DefaultPort          = 9876
	DefaultSecret        = "koordinator-webhook-certs"
	DefaultService       = "koordinator-webhook-service"
	DefaultMutating      = "koordinator-mutating-webhook-configuration"
	DefaultValidating    = "koordinator-validating-webhook-configuration"
	defaultSchedulerUser = "koord-scheduler"
	defaultManagerUser   = "koord-manager"
	defaultDescheduler   = "koord-descheduler"
	defaultAgentUser     = "koordlet"
)

// Options are what an administrator sets.
type Options struct {
	// Host is the address to listen on, "" for all; Port is the port.
	Host string
	Port int
	// Certs name the Secret, the Service and the configurations.
	Certs certs.Options
	Pod   pod.Options
	// ConfigMap is slo-controller-config.
	ConfigMap   configmap.Options
	Eviction    eviction.Options
	Quota       quota.Options
	Reservation reservation.Options
	// Registry takes the counters.
	Registry prometheus.Registerer
}

// Default are the options of an installation in a namespace whose slo-controller-config has the given place. The scheduler's
// annotations may be written by the service accounts koord-scheduler and koord-manager of that namespace, those of Reservations and jobs by
// koord-descheduler, too; the agents are koordlet there.
func Default(namespace, configNamespace, configName string, registry prometheus.Registerer) Options {
	user := func(name string) string { return "system:serviceaccount:" + namespace + ":" + name }
	return Options{
		Port: DefaultPort,
		Certs: certs.Options{
			Namespace: namespace, Secret: DefaultSecret, Service: DefaultService, Mutating: DefaultMutating, Validating: DefaultValidating,
		},
		Pod:       pod.Options{Schedulers: []string{user(defaultSchedulerUser), user(defaultManagerUser)}},
		ConfigMap: configmap.Options{Namespace: configNamespace, Name: configName},
		Eviction:  eviction.Options{Agents: []string{user(defaultAgentUser)}},
		Reservation: reservation.Options{
			Schedulers:   []string{user(defaultSchedulerUser), user(defaultManagerUser)},
			Deschedulers: []string{user(defaultDescheduler), user(defaultManagerUser)},
		},
		Registry: registry,
	}
}

// Webhooks are a server and what it serves.
type Webhooks struct {
	options Options
	keeper  *certs.Keeper
}

// New prepares the webhooks: a manager takes its server when it is made, and the rest afterwards.
func New(o Options) *Webhooks { return &Webhooks{options: o, keeper: certs.New(o.Certs)} }

// Server is for ctrl.Options.WebhookServer.
func (w *Webhooks) Server() webhook.Server {
	return webhook.NewServer(webhook.Options{
		Host: w.options.Host, Port: w.options.Port, TLSOpts: []func(*tls.Config){w.keeper.Configure},
	})
}

// Add registers the webhooks at the manager, which must have been made with Server, and a readiness check that passes once the
// server answers with a certificate. The manager must run them on every replica: make it one without leader election.
func (w *Webhooks) Add(mgr ctrl.Manager) error {
	answers, err := answer.New(w.options.Registry)
	if err != nil {
		return err
	}
	if err := w.keeper.Add(mgr); err != nil {
		return err
	}
	for _, err := range []error{
		pod.Add(mgr, w.options.Pod, answers), configmap.Add(mgr, w.options.ConfigMap, answers), eviction.Add(mgr, w.options.Eviction, answers),
		node.Add(mgr, answers), quota.Add(mgr, w.options.Quota, answers), reservation.Add(mgr, w.options.Reservation, answers),
	} {
		if err != nil {
			return err
		}
	}
	if err := mgr.AddReadyzCheck("webhook", mgr.GetWebhookServer().StartedChecker()); err != nil {
		return fmt.Errorf("add readiness check: %w", err)
	}
	return nil
}
