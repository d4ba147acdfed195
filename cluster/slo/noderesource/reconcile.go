// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	topologyv1alpha1 "github.com/koord-rt/koord-rt/api/topology/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/kept"
	"github.com/koord-rt/koord-rt/cluster/internal/ownership"
	"github.com/koord-rt/koord-rt/cluster/internal/unseen"
	"github.com/koord-rt/koord-rt/cluster/internal/wake"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
	"github.com/koord-rt/koord-rt/daemon/logs"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// Name of the controller, as --controllers has it.
const Name = "noderesource"

// manager is the field manager of what is written.
const manager = "koord-manager"

// Options of the controller.
type Options struct {
	// Store has the strategy in force. Required.
	Store *config.Store
	// Registry takes the metrics. Required.
	Registry prometheus.Registerer
	// SharedGPU has koordinator.sh/gpu.shared written (upstream's gate EnableSyncGPUSharedResource).
	SharedGPU bool
	// Workers is how many nodes are looked at at a time; 4 when 0.
	Workers int
}

// Add makes the controller. The manager's scheme needs the kinds of slo, scheduling and topology.node.k8s.io, and its cache
// keeps pods and NodeMetrics as cluster/internal/kept has them.
func Add(mgr ctrl.Manager, o Options) error {
	if o.Workers == 0 {
		o.Workers = 4
	}
	r := &reconciler{
		o: o, client: mgr.GetClient(), kept: kept.NewCache(mgr.GetCache()), written: map[string]time.Time{}, zoned: map[string]time.Time{}, contradicts: map[string]time.Time{},
		limit: logs.NewLimiter(logs.LimiterOptions{Every: time.Hour}), metrics: newMetrics(),
	}
	if err := o.Registry.Register(r.metrics); err != nil {
		return fmt.Errorf("set up the controller %s: metrics: %w", Name, err)
	}
	if err := r.kept.IndexPods(context.Background()); err != nil {
		return fmt.Errorf("set up the controller %s: %w", Name, err)
	}
	named := &handler.EnqueueRequestForObject{} // all these objects are named after their node
	err := ctrl.NewControllerManagedBy(mgr).Named(Name).
		For(&corev1.Node{}, builder.WithPredicates(nodeChanges())).
		Watches(&slov1alpha1.NodeMetric{}, named, builder.WithPredicates(reportChanges())).
		Watches(&slov1alpha1.NodeSLO{}, named, specChanges()).
		Watches(&schedulingv1alpha1.Device{}, named, specChanges()).
		Watches(&topologyv1alpha1.NodeResourceTopology{}, named).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(nodeOfPod), builder.WithPredicates(arrivals())).
		WatchesRawSource(wake.EveryNode(o.Store, mgr.GetCache())).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller %s: %w", Name, err)
	}
	return nil
}

// cached are the kinds that are not kept as the API has them.
type cached interface {
	IndexPods(context.Context) error
	PodsOn(ctx context.Context, node string) ([]*kept.Pod, error)
	NodeMetric(ctx context.Context, node string) (*kept.NodeMetric, error)
}

// reconciler is the thin part around [Decide].
type reconciler struct {
	o       Options
	client  client.Client
	kept    cached
	limit   *logs.Limiter
	metrics *metrics
	// unseen are writes of nodes.
	unseen unseen.Writes[string]

	mu sync.Mutex
	// written and zoned say when a node and its zones were last written by this process.
	written, zoned map[string]time.Time
	// contradicts says since when a node's reports have contradicted themselves. It is not kept beyond this process:
	// another one waits anew.
	contradicts map[string]time.Time
	// seen is what is known of each node's newest report by this process's own clock.
	seen map[string]sighting
}

// sighting is since when a report, or that there is none, is known.
type sighting struct {
	at    unit.Micros
	since time.Time
	// came: it was seen to come; the first of a node may have been there for long.
	came bool
}

// Reconcile looks at one node.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c := r.o.Store.Load()
	if c == nil || ctx.Err() != nil {
		return ctrl.Result{}, nil // the store wakes us; who ends leaves what is queued to the next leader
	}
	in, err := r.read(ctx, req.Name)
	if err != nil || in == nil {
		if err == nil {
			r.forget(req.Name)
		}
		return ctrl.Result{}, err
	}
	if r.unseen.Behind(req.Name, in.Node) { // what was lent, and since when, stands in the node
		return ctrl.Result{RequeueAfter: unseen.Again}, nil
	}
	in.Config, in.Now, in.SharedGPU = c, time.Now(), r.o.SharedGPU
	in.Since, in.ZonesSince = r.since(r.written, req.Name, in.Now), r.since(r.zoned, req.Name, in.Now)
	r.mu.Lock()
	in.Contradicts = r.contradicts[req.Name]
	r.mu.Unlock()
	in.Seen, in.Came = r.sight(req.Name, in.Report, in.Now)
	out := Decide(in)
	r.suspect(ctx, in, &out)
	if len(out.Weight.Reasons) > 0 {
		log.FromContext(ctx).V(1).Info("less than the usual is lent", "percent", out.Weight.Weight, "reasons", out.Weight.Reasons)
	}
	if out.Held > 0 {
		log.FromContext(ctx).V(1).Info("batch-memory is not raised: best-effort pods use too much of what they have requested", "bytes", int64(out.Held))
	}
	r.silent(ctx, in, &out)
	for _, p := range out.Problems {
		if ok, _ := r.limit.Allow(req.Name, p); ok {
			log.FromContext(ctx).Info("a node's resources are not what they could be", "problem", p)
		}
	}
	r.metrics.observe(req.Name, &out)
	if err := r.write(ctx, in, &out); err != nil {
		r.metrics.wrote(err)
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: out.Again}, nil
}

// read gathers what there is of a node from the cache, nil where there is no such node.
func (r *reconciler) read(ctx context.Context, name string) (*Input, error) {
	in := &Input{}
	var err error
	if in.Node, err = get[corev1.Node](ctx, r.client, name); err != nil || in.Node == nil {
		return nil, err
	}
	metric, err := r.kept.NodeMetric(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read NodeMetric %s: %w", name, err)
	}
	if metric != nil {
		in.Report = metric.Report
	}
	if in.Device, err = get[schedulingv1alpha1.Device](ctx, r.client, name); err != nil {
		return nil, err
	}
	if in.SLO, err = get[slov1alpha1.NodeSLO](ctx, r.client, name); err != nil {
		return nil, err
	}
	if in.Topology, err = get[topologyv1alpha1.NodeResourceTopology](ctx, r.client, name); err != nil {
		return nil, err
	}
	pods, err := r.kept.PodsOn(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", name, err)
	}
	in.Pods = make([]capacity.Pod, 0, len(pods))
	for _, p := range pods {
		if !p.Finished {
			in.Pods = append(in.Pods, p.Value)
		}
	}
	return in, nil
}

// get reads an object that is named after a node, nil where there is none.
func get[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, name string) (P, error) {
	var o P = new(T)
	if err := c.Get(ctx, types.NamespacedName{Name: name}, o); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read %T %s: %w", o, name, err)
	}
	return o, nil
}

// write sends what there is to write. What has gone meanwhile, or has become another version, comes again by its event.
func (r *reconciler) write(ctx context.Context, in *Input, out *Output) error {
	if out.Node != nil {
		data, err := json.Marshal(out.Node)
		if err != nil {
			return fmt.Errorf("encode the patch of node %s: %w", in.Node.Name, err)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: in.Node.Name}}
		err = r.client.Status().Patch(ctx, node, client.RawPatch(types.MergePatchType, data), client.FieldOwner(manager))
		switch {
		case ownership.Another(err): // its own event brings us to it
			log.FromContext(ctx).V(1).Info("another node has taken the name", "error", err.Error())
			return nil
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("write the resources of node %s: %w", in.Node.Name, err)
		}
		if err == nil {
			r.unseen.Wrote(in.Node.Name, node)
		}
		r.wrote(ctx, r.written, in, "node", data)
	}
	if out.Zones != nil {
		data, err := json.Marshal(out.Zones)
		if err != nil {
			return fmt.Errorf("encode the patch of NodeResourceTopology %s: %w", in.Node.Name, err)
		}
		zones := &topologyv1alpha1.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Name: in.Node.Name}}
		err = r.client.Patch(ctx, zones, client.RawPatch(types.MergePatchType, data), client.FieldOwner(manager))
		switch {
		case apierrors.IsConflict(err): // the event that tells us of the other version brings us back
			log.FromContext(ctx).V(1).Info("the zones have changed meanwhile", "error", err.Error())
			return nil
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("write the zones of node %s: %w", in.Node.Name, err)
		}
		r.wrote(ctx, r.zoned, in, "zones", data)
	}
	return nil
}

func (r *reconciler) wrote(ctx context.Context, at map[string]time.Time, in *Input, what string, data []byte) {
	r.mu.Lock()
	at[in.Node.Name] = in.Now
	r.mu.Unlock()
	r.metrics.wrote(nil)
	log.FromContext(ctx).V(1).Info("written", "what", what, "patch", string(data))
}

// since is the time since a write, long where this process has made none.
func (r *reconciler) since(at map[string]time.Time, name string, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return now.Sub(at[name]) // from the zero time: the longest duration that there is
}

// silent tells now and then why nothing is lent out of a node that has reported: its agent has ended, or its clock is wrong.
func (r *reconciler) silent(ctx context.Context, in *Input, out *Output) {
	if in.Report == nil || out.Without == "" || out.Without == off {
		return
	}
	if ok, _ := r.limit.Allow(in.Node.Name, "silent"); ok { // the reason differs each time
		log.FromContext(ctx).Info("nothing is lent out of a node", "reason", out.Without)
	}
}

// sight notes a report that has come, and tells since when the newest is known.
func (r *reconciler) sight(name string, report *capacity.Report, now time.Time) (since time.Time, came bool) {
	var at unit.Micros
	if report != nil {
		at = report.At
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s, known := r.seen[name]
	if !known || s.at != at {
		if r.seen == nil {
			r.seen = map[string]sighting{}
		}
		s = sighting{at: at, since: now, came: known}
		r.seen[name] = s
	}
	return s.since, s.came
}

// suspect remembers since when a node's reports have contradicted themselves, and tells of it once.
func (r *reconciler) suspect(ctx context.Context, in *Input, out *Output) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case out.Contradiction == "":
		delete(r.contradicts, in.Node.Name)
	case in.Contradicts.IsZero():
		r.contradicts[in.Node.Name] = in.Now
		log.FromContext(ctx).Info("a node's report contradicts itself", "what", out.Contradiction)
	}
}

// forget drops what is known of a node that has gone.
func (r *reconciler) forget(name string) {
	r.mu.Lock()
	delete(r.written, name)
	delete(r.zoned, name)
	delete(r.contradicts, name)
	delete(r.seen, name)
	r.mu.Unlock()
	r.unseen.Forget(name)
	r.metrics.forget(name)
}
