// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package answer is how our webhooks answer when something is wrong: what a request does wrong is refused, what goes wrong on
// our side lets the request pass, is counted and is told the user as a warning, because our errors must not stop a cluster
// any more than our absence does. Only where nobody but an agent of ours waits, and a wrong yes is worse than a late one,
// what goes wrong on our side refuses ([Answers.GuardClosed], [Answers.Closed]).
//
// Input is a handler, output the same handler guarded. It logs names and reasons only: a pod's environment can hold secrets. It
// may import controller-runtime and Prometheus' client; no other room of cluster.
package answer

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Answers makes answers and counts them.
type Answers struct {
	failedOpen   *prometheus.CounterVec
	failedClosed *prometheus.CounterVec
	refused      *prometheus.CounterVec
	took         *prometheus.HistogramVec
}

// New registers the counters.
func New(registry prometheus.Registerer) (*Answers, error) {
	a := &Answers{
		failedOpen: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "koord_manager_webhook_failed_open_total",
			Help: "Requests that a webhook let pass unchecked or unchanged, or in part, because something went wrong here.",
		}, []string{"webhook", "reason"}),
		failedClosed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "koord_manager_webhook_failed_closed_total",
			Help: "Requests of agents that a webhook refused because something went wrong here.",
		}, []string{"webhook", "reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "koord_manager_webhook_refused_total",
			Help: "Requests that a webhook refused.",
		}, []string{"webhook"}),
		// controller-runtime's histogram has one bucket from 1 to 10 ms, where all of the answers are that take long.
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "koord_manager_webhook_seconds",
			Help:    "How long a webhook's handler worked on a request.",
			Buckets: []float64{.0001, .0002, .0005, .001, .0015, .002, .003, .004, .005, .0075, .01, .02, .05, .1, .5, 1, 5},
		}, []string{"webhook"}),
	}
	for _, c := range []prometheus.Collector{a.failedOpen, a.failedClosed, a.refused, a.took} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register webhook counters: %w", err)
		}
	}
	return a, nil
}

// Guard turns a panic of the handler into a request that passes. Left to controller-runtime it would be refused.
func (a *Answers) Guard(webhook string, h admission.Handler) admission.Handler {
	return a.guard(webhook, h, a.Open)
}

// GuardClosed turns a panic of the handler into a refusal that says to come again.
func (a *Answers) GuardClosed(webhook string, h admission.Handler) admission.Handler {
	return a.guard(webhook, h, a.Closed)
}

func (a *Answers) guard(webhook string, h admission.Handler, failed func(webhook, reason, text string) admission.Response) admission.Handler {
	took := a.took.WithLabelValues(webhook)
	return admission.HandlerFunc(func(ctx context.Context, req admission.Request) (out admission.Response) {
		begun := time.Now()
		defer func() { took.Observe(time.Since(begun).Seconds()) }()
		defer func() {
			if r := recover(); r != nil {
				// The value can quote what was being decoded; its type and the stack cannot.
				logf.FromContext(ctx).Error(nil, "webhook panicked", "webhook", webhook, "type", fmt.Sprintf("%T", r), "stack", string(debug.Stack()))
				out = failed(webhook, "panic", "internal error, see the log of koord-manager")
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

// Closed refuses a request that could not be worked on, as something to try again: 503, which is no word about the request.
func (a *Answers) Closed(webhook, reason, text string) admission.Response {
	a.failedClosed.WithLabelValues(webhook, reason).Inc()
	out := admission.Denied("koord-manager: " + text + "; try again")
	out.Result.Code, out.Result.Reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
	return out
}

// Count counts a request of which a part could not be done.
func (a *Answers) Count(webhook, reason string) { a.FailedOpen(webhook, reason).Inc() }

// FailedOpen is the counter of one reason.
func (a *Answers) FailedOpen(webhook, reason string) prometheus.Counter {
	return a.failedOpen.WithLabelValues(webhook, reason)
}

// Who writes a hundred thousand wrong entries shall not have as many sentences made, logged and sent.
const (
	// Most is how many problems of a request are told.
	Most = 20
	// Enough is how many are looked for: far more than are told, since those that an object had before do not count at a change.
	Enough = 1000
)

// Few are the first problems, and how many more there are.
func Few(problems []string) []string {
	if len(problems) <= Most {
		return problems
	}
	return append(slices.Clip(problems[:Most]), fmt.Sprintf("and at least %d more", len(problems)-Most))
}

// Refuse refuses a request, saying what is wrong with it.
func (a *Answers) Refuse(webhook string, problems []string) admission.Response {
	a.refused.WithLabelValues(webhook).Inc()
	return admission.Denied(strings.Join(Few(problems), "; "))
}
