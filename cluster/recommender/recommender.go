// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package recommender fills Recommendation objects from what the pods of a workload use.
//
// Inputs are Recommendations, NodeMetrics and pods of the cache; what owns a pod's owner, and the pods of a selector, are asked of the
// API server now and then, never pod by pod. Outputs are the status of Recommendations, by server-side apply without force, and the
// wish for container figures in the NodeMetrics of nodes where a pod has several. Everything happens in one pass a minute, in one
// goroutine; without a Recommendation nobody's pods are looked at. The formula is that of policy/recommend. What is remembered stands in the status
// too, so that the next leader goes on from there.
//
// It may import api, model, policy and daemon, controller-runtime, and cluster/internal; nothing of cluster/slo.
package recommender

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/koord-rt/koord-rt/cluster/internal/kept"
	"github.com/koord-rt/koord-rt/cluster/internal/unseen"
	"github.com/koord-rt/koord-rt/daemon/logs"
	"github.com/koord-rt/koord-rt/policy/recommend"
)

// Name of the controller in logs.
const Name = "recommender"

// Options of the recommender.
type Options struct {
	// Registry takes the metrics. Required.
	Registry prometheus.Registerer
	// Model is the formula's configuration. Required: start from recommend.Default.
	Model recommend.Config
	// Every is the time between two passes; a minute when 0.
	Every time.Duration
}

const (
	// fresh is how old a report may be that is learned from, ahead how far in the future, by clocks that differ.
	fresh, ahead = 10 * time.Minute, time.Minute
	// silence is for how long no pod may have been measured until the status says so.
	silence = 10 * time.Minute
	// askAgain is how often the API server is asked anew for the pods of a selector, and for a workload without pods.
	askAgain = 5 * time.Minute
	// passLimit ends a pass that hangs.
	passLimit = 2 * time.Minute
)

// Add makes the recommender, which works where the lease is held. The manager's cache keeps pods and NodeMetrics as cluster/internal/kept
// has them: pods with their owners, NodeMetrics with their pods one by one.
func Add(mgr ctrl.Manager, o Options) error {
	if err := o.Model.Validate(); err != nil {
		return fmt.Errorf("set up the %s: %w", Name, err)
	}
	if o.Every == 0 {
		o.Every = time.Minute
	}
	r := newRecommender(o, mgr.GetClient(), kept.NewCache(mgr.GetCache()), mgr.GetAPIReader(), mgr.GetLogger().WithName(Name))
	if err := o.Registry.Register(r.metrics); err != nil {
		return fmt.Errorf("set up the %s: metrics: %w", Name, err)
	}
	if err := mgr.Add(r); err != nil {
		return fmt.Errorf("set up the %s: %w", Name, err)
	}
	return nil
}

// cached are the kinds that are not kept as the API has them.
type cached interface {
	NodeMetrics(context.Context) ([]*kept.NodeMetric, error)
	PodsIn(ctx context.Context, namespace string) ([]*kept.Pod, error)
}

// recommender is the thin part around policy/recommend and [decide]. All fields belong to the goroutine of Start.
type recommender struct {
	o       Options
	client  client.Client
	kept    cached
	log     logr.Logger
	limit   *logs.Limiter
	metrics *metrics
	owners  *owners
	// entries are the Recommendations that there are; unseen are writes of their statuses.
	entries map[types.NamespacedName]*entry
	unseen  unseen.Writes[types.NamespacedName]
	// reports are the times of the newest reports of nodes that were learned from.
	reports map[string]time.Time
}

// entry is one Recommendation.
type entry struct {
	uid        types.UID
	generation int64
	model      *recommend.Model
	// quiet is since when no pod has been measured: when it was last, or when it was first looked at.
	quiet time.Time
	// looked is when the API server was last asked for the workload, gone what it said.
	looked time.Time
	gone   bool
}

func newRecommender(o Options, c client.Client, k cached, live client.Reader, log logr.Logger) *recommender {
	return &recommender{
		o: o, client: c, kept: k, log: log, limit: logs.NewLimiter(logs.LimiterOptions{Every: time.Hour}), metrics: newMetrics(),
		owners: newOwners(live), entries: map[types.NamespacedName]*entry{}, reports: map[string]time.Time{},
	}
}

// Start works until ctx ends. What fails is tried again in the next pass: a recommendation is never worth a manager.
func (r *recommender) Start(ctx context.Context) error {
	tick := time.NewTicker(r.o.Every)
	defer tick.Stop()
	for {
		func() {
			ctx, cancel := context.WithTimeout(ctx, passLimit)
			defer cancel()
			if err := r.pass(ctx, time.Now()); err != nil && ctx.Err() != context.Canceled {
				r.complain("pass", err)
			}
		}()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// complain logs what is wrong, once an hour for each scope and text.
func (r *recommender) complain(scope string, err error) {
	if ok, _ := r.limit.Allow(scope, err.Error()); ok {
		r.log.Error(err, "a recommendation is not what it could be", "of", scope)
	}
}
