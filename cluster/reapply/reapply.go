// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package reapply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	configv1alpha1 "github.com/koord-rt/koord-rt/api/config/v1alpha1"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cluster/internal/profiles"
	"github.com/koord-rt/koord-rt/daemon/logs"
	"github.com/koord-rt/koord-rt/policy/profile"
)

// Name of the controller, as --controllers has it upstream.
const Name = "colocationprofile"

// page is how many objects are asked for at a time.
const page = 500

// Options of the controller.
type Options struct {
	// Interval is the time between two rounds.
	Interval time.Duration
	// All keeps profiles up that do not ask for it.
	All bool
	// QPS and Burst bound the writes.
	QPS   float64
	Burst int
	// Registry takes the counter; required.
	Registry prometheus.Registerer
}

// Add lets the manager run the rounds on the elected replica.
func Add(mgr ctrl.Manager, o Options) error {
	r := newRounds(o, mgr.GetAPIReader(), mgr.GetClient())
	if err := o.Registry.Register(r.pods); err != nil {
		return fmt.Errorf("set up the controller %s: metrics: %w", Name, err)
	}
	if err := mgr.Add(r); err != nil {
		return fmt.Errorf("set up the controller %s: %w", Name, err)
	}
	return nil
}

// rounds is a Runnable for a manager; it needs the lease.
type rounds struct {
	o     Options
	read  client.Reader
	write client.Writer
	pace  flowcontrol.RateLimiter
	limit *logs.Limiter
	pods  *prometheus.CounterVec
}

func newRounds(o Options, read client.Reader, write client.Writer) *rounds {
	return &rounds{
		o: o, read: read, write: write, pace: flowcontrol.NewTokenBucketRateLimiter(float32(o.QPS), o.Burst), limit: logs.NewLimiter(logs.LimiterOptions{Every: time.Hour}),
		pods: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "koord_rt_manager_reapplied_pods_total", Help: "Pods that a changed profile was to be applied to again, by outcome.",
		}, []string{"status"}),
	}
}

// NeedLeaderElection is true: two replicas would do the same twice.
func (r *rounds) NeedLeaderElection() bool { return true }

// Start makes a round per interval until ctx ends. An error is tried again in the next round.
func (r *rounds) Start(ctx context.Context) error {
	log := logf.FromContext(ctx).WithName(Name)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if err := r.round(logf.IntoContext(ctx, log)); err != nil && ctx.Err() == nil {
			log.Error(err, "profiles are not kept up; trying again", "after", r.o.Interval)
		}
		timer.Reset(r.o.Interval)
	}
}

// round looks once at all pods that wait. Without a profile to keep up there is no look at any.
func (r *rounds) round(ctx context.Context) error {
	profiles, err := r.profiles(ctx)
	if err != nil || len(profiles) == 0 {
		return err
	}
	names := namespaces{read: r.read, labels: map[string]map[string]string{}}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	waiting := client.MatchingFieldsSelector{Selector: fields.AndSelectors(
		fields.OneTermEqualSelector("spec.nodeName", ""), fields.OneTermEqualSelector("status.phase", string(corev1.PodPending)),
	)}
	var t troubles
	for next := ""; ; {
		if err := r.read.List(ctx, list, waiting, client.Limit(page), client.Continue(next)); err != nil {
			return errors.Join(append(t.told, fmt.Errorf("list pods that wait: %w", err))...)
		}
		for i := range list.Items {
			p := &list.Items[i]
			if t.of[p.Namespace] >= patience {
				continue
			}
			if err := r.pod(ctx, p, profiles, &names); err != nil {
				t.add(p.Namespace, err)
			} else {
				t.row = 0
			}
			if t.row >= 10*patience || ctx.Err() != nil {
				return errors.Join(t.told...) // a server that refuses all is asked again in the next round
			}
		}
		if next = list.Continue; next == "" {
			return errors.Join(t.told...)
		}
	}
}

// patience is how many pods of a namespace may fail in a round: what refuses them, such as a rule of the namespace's own, refuses all of them,
// and those of others come after them in every round. It is also how many errors a round tells.
const patience = 10

// troubles are those of a round.
type troubles struct {
	of   map[string]int // by namespace
	row  int            // without a pod that went well
	told []error
}

func (t *troubles) add(namespace string, err error) {
	if t.of == nil {
		t.of = map[string]int{}
	}
	t.of[namespace]++
	if t.row++; len(t.told) < patience {
		t.told = append(t.told, err)
	}
}

// profiles are those that are kept up.
func (r *rounds) profiles(ctx context.Context) ([]profile.Profile, error) {
	var out []profile.Profile
	var list configv1alpha1.ClusterColocationProfileList
	err := r.read.List(ctx, &list)
	switch {
	case meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list ClusterColocationProfiles: %w", err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		if o.DeletionTimestamp == nil && (r.o.All || o.Labels[protocol.LabelControllerManaged] == "true") {
			out = append(out, profiles.Of(o))
		}
	}
	return out, nil
}

// pod brings one pod to what the profiles say. One that was changed or has gone meanwhile is left to the next round.
func (r *rounds) pod(ctx context.Context, p *metav1.PartialObjectMetadata, profiles []profile.Profile, names *namespaces) error {
	if p.DeletionTimestamp != nil || p.Labels[protocol.KeyOptOut] == "true" || p.Annotations[protocol.KeyOptOut] == "true" {
		return nil
	}
	value := profile.Pod{Namespace: p.Namespace, Name: p.Name, Labels: maps.Clone(p.Labels), Annotations: maps.Clone(p.Annotations)}
	problems := profile.Reapply(&value, func() (map[string]string, error) { return names.of(ctx, p.Namespace) }, profiles, string(p.UID))
	for _, problem := range problems {
		if ok, _ := r.limit.Allow(problem.At, problem.Reason); ok {
			logf.FromContext(ctx).Info("a profile is not kept up", "problem", problem.String())
		}
	}
	labels, err := profile.Changes(p.Labels, value.Labels)
	annotations, more := profile.Changes(p.Annotations, value.Annotations)
	if err = errors.Join(err, more); err != nil {
		if ok, _ := r.limit.Allow("profiles", err.Error()); ok {
			logf.FromContext(ctx).Info("a profile is kept up in part only", "problem", err.Error())
		}
	}
	if len(labels)+len(annotations) == 0 {
		return nil
	}
	if space, err := names.of(ctx, p.Namespace); err != nil || space[protocol.KeyOptOut] == "true" {
		return err
	}
	metadata := map[string]any{"uid": p.UID, "resourceVersion": p.ResourceVersion}
	for name, changes := range map[string]map[string]string{"labels": labels, "annotations": annotations} {
		if len(changes) > 0 { // null would take them all away
			metadata[name] = changes
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode the patch of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	if err := r.pace.Wait(ctx); err != nil {
		return fmt.Errorf("wait for the turn of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	to := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	err = r.write.Patch(ctx, to, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("koord-manager"))
	switch {
	case err == nil:
		r.pods.WithLabelValues("succeeded").Inc()
		logf.FromContext(ctx).V(1).Info("a profile was applied again", "pod", p.Namespace+"/"+p.Name)
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
	default:
		r.pods.WithLabelValues("failed").Inc()
		return fmt.Errorf("apply profiles to pod %s/%s again: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// namespaces reads each namespace of a round once.
type namespaces struct {
	read   client.Reader
	labels map[string]map[string]string
}

func (n *namespaces) of(ctx context.Context, name string) (map[string]string, error) {
	if labels, known := n.labels[name]; known {
		return labels, nil
	}
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := n.read.Get(ctx, client.ObjectKey{Name: name}, o); err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	n.labels[name] = o.Labels
	return o.Labels, nil
}
