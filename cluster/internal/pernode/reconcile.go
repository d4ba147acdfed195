// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pernode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/koord-rt/koord-rt/cluster/internal/ownership"
	"github.com/koord-rt/koord-rt/cluster/internal/unseen"
	"github.com/koord-rt/koord-rt/cluster/internal/wake"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
	"github.com/koord-rt/koord-rt/daemon/logs"
)

// Kind is what is kept for every node.
type Kind struct {
	// Name of the controller, GVK of the objects.
	Name string
	GVK  schema.GroupVersionKind
	// New makes an empty object, Spec is the spec of one, for JSON.
	New  func() client.Object
	Spec func(client.Object) any
	// Render is the spec that the strategy gives a node, for JSON. Problems are the node's annotations and labels that cannot be
	// read.
	Render func(*config.Config, config.Node) (spec any, problems []config.Problem)
	// Held are the fields that a key of the ConfigMap gives.
	Held map[string][]ownership.Path
	// Extensions is the field that extensions give, "" for none.
	Extensions ownership.Path
	// Alias gives other names of a field that somebody wrote; may be nil.
	Alias func(ownership.Path) []ownership.Path
	// Rules are the API server's over several fields.
	Rules []ownership.Rule
}

// Options of a controller.
type Options struct {
	// Store has the strategy in force.
	Store *config.Store
	// Workers is how many nodes are written at a time; 32 when 0: an API server that 5,000 nodes report to takes 50 to 100 ms for a write
	// (docs/benchmarks, Manager), and 8 at a time would be 90 a second. What it is spared is the business of --rest-config-qps.
	Workers int
	// Orphan is how long an object outlives its node; ten minutes when 0.
	Orphan time.Duration
	// Registry takes the counters; required.
	Registry prometheus.Registerer
}

// Add makes the controller of a kind.
func Add(mgr ctrl.Manager, k Kind, o Options) error {
	if o.Workers == 0 {
		o.Workers = 32
	}
	if o.Orphan == 0 {
		o.Orphan = Orphan
	}
	r := &reconciler{
		kind: k, store: o.Store, client: mgr.GetClient(), live: mgr.GetAPIReader(), orphan: o.Orphan, gone: map[string]time.Time{},
		limit: logs.NewLimiter(logs.LimiterOptions{Every: time.Hour}), metrics: newMetrics(k.Name),
	}
	if err := r.metrics.register(o.Registry); err != nil {
		return fmt.Errorf("set up the controller %s: metrics: %w", k.Name, err)
	}
	err := ctrl.NewControllerManagedBy(mgr).Named(k.Name).
		For(k.New(), builder.WithPredicates(wake.OfSpec())).
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(nodeChanged())).
		WatchesRawSource(wake.EveryNode(o.Store, mgr.GetCache())).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller %s: %w", k.Name, err)
	}
	return nil
}

// nodeChanged passes what the strategy of a node hangs on: not its status, which changes every few seconds.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
			!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
	}}
}

// reconciler is the thin part around [Plan].
type reconciler struct {
	kind    Kind
	store   *config.Store
	client  client.Client
	live    client.Reader // past the cache
	orphan  time.Duration
	limit   *logs.Limiter
	metrics metrics
	unseen  unseen.Writes[string]

	mu sync.Mutex
	// gone says since when an object has no node.
	gone map[string]time.Time
}

// Reconcile looks at one node.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c := r.store.Load()
	if ctx.Err() != nil {
		return ctrl.Result{}, nil // who ends leaves what is queued to the next leader
	}
	found, object, problems, err := r.find(ctx, req, c)
	if err != nil {
		r.metrics.did(err, whyRead)
		return ctrl.Result{}, err
	}
	if c == nil && found.NodeGone == 0 {
		return ctrl.Result{}, nil // the store wakes every node; what a node has left behind it does not
	}
	switch {
	case found.Stored == nil:
		r.unseen.Forget(req.Name) // one that is there is not made again: the API server refuses that
	case r.unseen.Behind(req.Name, object):
		// A node can be asked for again just after it was written: its own event and the strategy's come apart, as they do to a new leader.
		return ctrl.Result{RequeueAfter: unseen.Again}, nil
	}
	step, err := Plan(found)
	if err != nil {
		r.metrics.did(err, whyDecide)
		return ctrl.Result{}, fmt.Errorf("decide about %s %s: %w", r.kind.GVK.Kind, req.Name, err)
	}
	if found.NodeGone == 0 {
		r.tell(ctx, req.Name, problems, step.Yielded)
	}
	switch {
	case step.Delete:
		step.Again, err = r.remove(ctx, req.Name, object)
	case step.Apply != nil:
		if err = r.apply(ctx, req.Name, step); apierrors.IsInvalid(err) && !ownership.Another(err) {
			r.metrics.did(err, whyRefused)
			err = r.rest(ctx, req.Name, found, err)
			break
		}
		r.metrics.did(err, whyApply)
	}
	if apierrors.IsConflict(err) || ownership.Another(err) {
		// Somebody has just written a field of ours, or made the object, or it is another one: the cache will say so.
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	return ctrl.Result{RequeueAfter: step.Again}, err
}

// apply writes.
func (r *reconciler) apply(ctx context.Context, name string, step Step) error {
	step.Apply.SetGroupVersionKind(r.kind.GVK)
	step.Apply.SetName(name)
	if err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(step.Apply), client.FieldOwner(Manager)); err != nil {
		return fmt.Errorf("apply %s %s: %w", r.kind.GVK.Kind, name, err)
	}
	r.unseen.Wrote(name, step.Apply)
	l := log.FromContext(ctx)
	if len(step.Overridden) > 0 {
		l.Info("applied; fields of others stay", "fields", step.Overridden)
	} else {
		l.V(1).Info("applied")
	}
	return nil
}

// rest writes everything but what the API server has refused, so that this holds up nothing else. The refusal is returned: it is told, and the
// whole is tried again later and later.
func (r *reconciler) rest(ctx context.Context, name string, found Found, refused error) error {
	if found.Refused = refusedFields(refused); len(found.Refused) == 0 {
		return refused
	}
	step, err := Plan(found)
	if err == nil && step.Apply != nil {
		err = r.apply(ctx, name, step)
		r.metrics.did(err, whyApply)
	}
	return errors.Join(refused, err)
}

// refusedFields are the fields of the spec that an API server names as it refuses an object; the spec as a whole is none.
func refusedFields(err error) []ownership.Path {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var out []ownership.Path
	for _, cause := range status.Status().Details.Causes {
		if field, is := strings.CutPrefix(cause.Field, "spec."); is {
			field, _, _ = strings.Cut(field, "[") // a list is one field, and an entry of a map is more than need be
			out = append(out, "/"+strings.ReplaceAll(field, ".", "/"))
		}
	}
	return out
}

// tell counts what became of the strategy at a look, and says, once an hour, what of it is not as it is wanted.
func (r *reconciler) tell(ctx context.Context, node string, problems []config.Problem, yielded []ownership.Yielded) {
	why := whyStrategy
	switch {
	case len(problems) > 0:
		why = whyNode
	case len(yielded) > 0:
		why = whyYielded
	}
	r.metrics.parsed.WithLabelValues(status(why == whyStrategy), why).Inc()
	say := func(message string, p config.Problem) {
		if ok, _ := r.limit.Allow(node, p.Error()); ok {
			log.FromContext(ctx).Info(message, "problem", p.Error())
		}
	}
	for _, p := range problems {
		say("passed over what a node says of itself", p)
	}
	for _, y := range yielded {
		say("a field gives way to another's", r.problem(y))
	}
}

// problem names the key of the ConfigMap that wants a field which gave way, the field, and the reason.
func (r *reconciler) problem(y ownership.Yielded) config.Problem {
	p := config.Problem{Path: strings.ReplaceAll(y.Path[1:], "/", ".")}
	for key, of := range r.kind.Held {
		if held(y.Path, of) {
			p.Key = key
		}
	}
	what := "left out"
	if y.Stays {
		what = "stays as it was"
	}
	p.Err = fmt.Errorf("%s: %s beside fields of others: %s", what, y.Why, strings.Join(y.Owners, ", "))
	return p
}

// find reads what there is, from the cache. Problems are what the node says of itself. Without a strategy nothing is wanted yet.
func (r *reconciler) find(ctx context.Context, req ctrl.Request, c *config.Config) (Found, client.Object, []config.Problem, error) {
	found := Found{Alias: r.kind.Alias, Rules: r.kind.Rules, Orphan: r.orphan}
	object := r.kind.New()
	switch err := r.client.Get(ctx, req.NamespacedName, object); {
	case err == nil:
		spec, err := ownership.TreeOf(r.kind.Spec(object))
		if err != nil {
			return found, nil, nil, fmt.Errorf("read the spec of %s %s: %w", r.kind.GVK.Kind, req.Name, err)
		}
		found.Stored = &Stored{UID: object.GetUID(), Spec: spec, Managed: object.GetManagedFields(), Annotations: object.GetAnnotations()}
	case !apierrors.IsNotFound(err):
		return found, nil, nil, fmt.Errorf("read %s %s: %w", r.kind.GVK.Kind, req.Name, err)
	}
	var node corev1.Node
	err := r.client.Get(ctx, req.NamespacedName, &node)
	if client.IgnoreNotFound(err) != nil {
		return found, nil, nil, fmt.Errorf("read node %s: %w", req.Name, err)
	}
	if found.NodeGone = r.missing(req.Name, err != nil, found.Stored != nil); err != nil || c == nil {
		return found, object, nil, nil
	}
	spec, problems := r.kind.Render(c, config.Node{Name: node.Name, Labels: node.Labels, Annotations: node.Annotations})
	if found.Wanted, err = ownership.TreeOf(spec); err != nil {
		return found, nil, nil, fmt.Errorf("write the strategy of node %s: %w", req.Name, err)
	}
	for key, paths := range r.kind.Held {
		if c.Unknown(key) {
			found.Held = append(found.Held, paths...)
		}
	}
	if r.kind.Extensions != "" && c.UnknownExtensions() {
		found.Held = append(found.Held, r.kind.Extensions)
	}
	return found, object, problems, nil
}
