// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package answer is how our webhooks answer when something is wrong: what a request does wrong is refused, what goes wrong on
// our side lets the request pass, is counted and is told the user as a warning, because our errors must not stop a cluster
// any more than our absence does.
//
// Input is a handler, output the same handler guarded. It logs names and reasons only: a pod's environment can hold secrets. It
// may import controller-runtime and Prometheus' client; no other room of cluster.
package answer

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Answers makes answers and counts them.
type Answers struct {
	failedOpen *prometheus.CounterVec
	refused    *prometheus.CounterVec
}

// New registers the counters.
func New(registry prometheus.Registerer) (*Answers, error) {
	a := &Answers{
		failedOpen: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "koord_manager_webhook_failed_open_total",
			Help: "Requests that a webhook let pass unchecked or unchanged, or in part, because something went wrong here.",
		}, []string{"webhook", "reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "koord_manager_webhook_refused_total",
			Help: "Requests that a webhook refused.",
		}, []string{"webhook"}),
	}
	for _, c := range []prometheus.Collector{a.failedOpen, a.refused} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register webhook counters: %w", err)
		}
	}
	return a, nil
}

// Guard turns a panic of the handler into a request that passes. Left to controller-runtime it would be refused.
func (a *Answers) Guard(webhook string, h admission.Handler) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, req admission.Request) (out admission.Response) {
		defer func() {
			if r := recover(); r != nil {
				// The value can quote what was being decoded; its type and the stack cannot.
				logf.FromContext(ctx).Error(nil, "webhook panicked", "webhook", webhook, "type", fmt.Sprintf("%T", r), "stack", string(debug.Stack()))
				out = a.Open(webhook, "panic", "internal error, see the log of koord-manager")
			}
		}()
		return h.Handle(ctx, req)
	})
}

// Open lets a request pass that could not be worked on.
func (a *Answers) Open(webhook, reason, warning string) admission.Response {
	a.Count(webhook, reason)
	return admission.Allowed("").WithWarnings("koord-manager: " + warning + "; let pass as it is")
}

// Count counts a request of which a part could not be done.
func (a *Answers) Count(webhook, reason string) { a.FailedOpen(webhook, reason).Inc() }

// FailedOpen is the counter of one reason.
func (a *Answers) FailedOpen(webhook, reason string) prometheus.Counter {
	return a.failedOpen.WithLabelValues(webhook, reason)
}

// Refuse refuses a request, saying everything that is wrong with it.
func (a *Answers) Refuse(webhook string, problems []string) admission.Response {
	a.refused.WithLabelValues(webhook).Inc()
	return admission.Denied(strings.Join(problems, "; "))
}
