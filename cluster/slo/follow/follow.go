// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package follow keeps the store of the cluster's strategy equal to the ConfigMap slo-controller-config.
//
// Input is the one ConfigMap, from the cache; outputs are the parsed strategy in a config.Store, and what is wrong with it as an
// event on the ConfigMap, a log line and a metric. A ConfigMap that is not there, or is deleted, means the default of every key.
package follow

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/koord-rt/koord-rt/cluster/slo/config"
)

// Options of the follower.
type Options struct {
	// Namespace and Name of the ConfigMap.
	Namespace, Name string
	// Store to keep.
	Store *config.Store
	// Problems counts, by key, what is wrong with the ConfigMap as it is now.
	Problems *prometheus.GaugeVec
}

// NewProblems makes the metric of [Options].
func NewProblems() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "koord_rt_manager_config_problems",
		Help: "Problems of slo-controller-config by key; a key with one keeps what it said before.",
	}, []string{"key"})
}

// Add makes the follower, which works on the elected replica alone.
func Add(mgr ctrl.Manager, o Options) error {
	f := &follower{o: o, read: mgr.GetCache(), events: mgr.GetEventRecorder("koord-manager")}
	mine := func(object client.Object) bool {
		return object.GetNamespace() == o.Namespace && object.GetName() == o.Name
	}
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.Namespace, Name: o.Name}}
	err := ctrl.NewControllerManagedBy(mgr).Named("slo-controller-config").
		For(&corev1.ConfigMap{}, builder.WithPredicates(predicate.NewPredicateFuncs(mine))).
		// A ConfigMap that is not there tells nobody: look once.
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			q.Add(request)
			return nil
		})).
		Complete(f)
	if err != nil {
		return fmt.Errorf("set up the follower of %s/%s: %w", o.Namespace, o.Name, err)
	}
	return nil
}

// follower has one worker, so its fields need no lock.
type follower struct {
	o      Options
	read   client.Reader
	events events.EventRecorder
	// last is the data that was read.
	last map[string]string
}

// Reconcile reads the ConfigMap.
func (f *follower) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var object corev1.ConfigMap
	err := f.read.Get(ctx, req.NamespacedName, &object)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("read ConfigMap %s: %w", req.NamespacedName, err)
	}
	there := err == nil
	before := f.o.Store.Load()
	if before != nil && maps.Equal(f.last, object.Data) {
		return ctrl.Result{}, nil
	}
	now, problems := config.Parse(object.Data, before)
	f.last = object.Data
	f.o.Store.Set(now)
	log.FromContext(ctx).Info("strategy read", "there", there, "resourceVersion", object.ResourceVersion, "problems", len(problems))
	f.tell(ctx, &object, problems)
	return ctrl.Result{}, nil
}

// tell reports what is wrong, one event per reason: the recorder counts a second one of the same reason and version of the object with the first,
// and its note, which names another key, would be lost.
func (f *follower) tell(ctx context.Context, object *corev1.ConfigMap, problems []config.Problem) {
	f.o.Problems.Reset()
	for _, key := range config.Keys() {
		f.o.Problems.WithLabelValues(key).Set(0)
	}
	byReason := map[string][]string{}
	for _, p := range problems {
		log.FromContext(ctx).Error(p, "slo-controller-config: the key keeps what it said before", "key", p.Key)
		f.o.Problems.WithLabelValues(p.Key).Inc()
		byReason[reason(p.Key)] = append(byReason[reason(p.Key)], p.Error())
	}
	for _, why := range slices.Sorted(maps.Keys(byReason)) {
		f.events.Eventf(object, nil, corev1.EventTypeWarning, why, "Read", "%s", note(byReason[why]))
	}
}

// maxNote is the longest note of an event that API servers take.
const maxNote = 1024

// note joins texts, cut to what an event holds.
func note(texts []string) string {
	out := strings.Join(texts, "; ")
	if len(out) > maxNote {
		out = strings.ToValidUTF8(out[:maxNote-3], "") + "..."
	}
	return out
}

// reason is upstream's event reason of a key.
func reason(key string) string {
	switch key {
	case config.KeyColocation:
		return "ColocationCfgUnmarshalFailed"
	case config.KeyNormalization:
		return "CPUNormalizationCfgUnmarshalFailed"
	case config.KeyAmplification:
		return "ResourceAmplificationCfgUnmarshalFailed"
	}
	return "SLOCfgUnmarshalFailed"
}
