// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package recommender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/koord-rt/koord-rt/api/analysis/v1alpha1"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/kept"
	"github.com/koord-rt/koord-rt/policy/recommend"
)

// world is what an API server holds, with what is asked of it past the cache and what is applied.
type world struct {
	client.Client // what is not below is never called
	recs          []v1alpha1.Recommendation
	// behind is what the cache has of them while it lags.
	behind  []v1alpha1.Recommendation
	metrics []slov1alpha1.NodeMetric
	pods    []corev1.Pod
	// live are objects by "Kind name", labelled what selectors find.
	live     map[string]metav1.ObjectMeta
	labelled map[string][]types.UID
	// silent is what reads past the cache are answered with, refuse what writes are.
	silent, refuse error
	// refuseNode is the node whose writes alone are refused.
	refuseNode string

	asked    []string
	applied  []string
	versions int
}

func (w *world) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *v1alpha1.RecommendationList:
		recs := w.recs
		if w.behind != nil {
			recs = w.behind
		}
		for i := range recs {
			l.Items = append(l.Items, *recs[i].DeepCopy())
		}
	default:
		return fmt.Errorf("list of %T", list)
	}
	return nil
}

// NodeMetrics are those of the cache.
func (w *world) NodeMetrics(context.Context) (out []*kept.NodeMetric, _ error) {
	for i := range w.metrics {
		out = append(out, kept.NodeMetricOf(w.metrics[i].DeepCopy(), true))
	}
	return out, nil
}

// PodsIn are those of the cache.
func (w *world) PodsIn(_ context.Context, namespace string) (out []*kept.Pod, _ error) {
	for i := range w.pods {
		if w.pods[i].Namespace == namespace {
			out = append(out, kept.PodOf(&w.pods[i], true))
		}
	}
	return out, nil
}

// live is what is asked past the cache.
type live struct{ *world }

func (l live) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	what := o.Namespace + "?" + o.LabelSelector.String()
	l.asked = append(l.asked, what)
	out := list.(*metav1.PartialObjectMetadataList)
	for _, uid := range l.labelled[what] {
		out.Items = append(out.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: uid}})
	}
	return l.silent
}

func (l live) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	what := o.GetObjectKind().GroupVersionKind().Kind + " " + key.Namespace + "/" + key.Name
	l.asked = append(l.asked, what)
	if l.silent != nil {
		return l.silent
	}
	m, ok := l.live[what]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, key.Name)
	}
	o.(*metav1.PartialObjectMetadata).ObjectMeta = m
	return nil
}

// Apply is that of NodeMetrics.
func (w *world) Apply(_ context.Context, c runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	o := client.ApplyOptions{}
	o.ApplyOptions(opts)
	text, err := json.Marshal(c)
	w.applied = append(w.applied, o.FieldManager+" "+string(text))
	if w.refuseNode != "" && strings.Contains(string(text), `"name":"`+w.refuseNode+`"`) {
		err = errors.New("refused")
	}
	return errors.Join(err, w.refuse)
}

func (w *world) Status() client.SubResourceWriter { return status{w: w} }

type status struct {
	client.SubResourceWriter
	w *world
}

// Apply is that of the status of Recommendations: as the API server does it, the status is there afterwards.
func (s status) Apply(_ context.Context, c runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	var o v1alpha1.Recommendation
	if err := json.Unmarshal(text, &o); err != nil {
		return err
	}
	i := slices.IndexFunc(s.w.recs, func(r v1alpha1.Recommendation) bool { return r.UID == o.UID })
	if s.w.refuse != nil || i < 0 {
		return errors.Join(s.w.refuse, fmt.Errorf("object %d", i))
	}
	s.w.versions++
	s.w.recs[i].Status, s.w.recs[i].ResourceVersion = o.Status, strconv.Itoa(s.w.versions)
	c.(interface{ SetResourceVersion(string) }).SetResourceVersion(s.w.recs[i].ResourceVersion)
	s.w.applied = append(s.w.applied, o.Namespace+"/"+o.Name)
	return nil
}

// bench is a recommender in a world, with a clock.
type bench struct {
	*world
	*recommender
	now time.Time
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{
		world: &world{live: map[string]metav1.ObjectMeta{}, labelled: map[string][]types.UID{}},
		now:   time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC),
	}
	b.restart()
	return b
}

// restart is what a new leader begins with.
func (b *bench) restart() {
	b.recommender = newRecommender(Options{Model: recommend.Default()}, b.world, b.world, live{b.world}, logr.Discard())
}

// run does n passes, a minute apart, for each of which all nodes report.
func (b *bench) run(t *testing.T, n int) {
	t.Helper()
	for range n {
		b.now = b.now.Add(time.Minute)
		at := metav1.NewTime(b.now)
		for i := range b.world.metrics {
			b.world.metrics[i].Status.UpdateTime = &at
		}
		if err := b.pass(t.Context(), b.now); err != nil {
			t.Fatal(err)
		}
	}
}

// recommendation adds one of a workload.
func (b *bench) recommendation(name, apiVersion, kind, workload string) {
	b.versions++
	b.recs = append(b.recs, v1alpha1.Recommendation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Generation: 1, ResourceVersion: strconv.Itoa(b.versions)},
		Spec: v1alpha1.RecommendationSpec{Target: v1alpha1.RecommendationTarget{
			Type:     v1alpha1.TargetWorkload,
			Workload: &v1alpha1.CrossVersionObjectReference{APIVersion: apiVersion, Kind: kind, Name: workload},
		}},
	})
}

// pod adds one with an owner on a node, that has reported what it uses.
func (b *bench) pod(name, node, ownerKind, owner, cpu, memory string, containers ...string) {
	yes := true
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("pod-" + name)},
		Spec:       corev1.PodSpec{NodeName: node},
	}
	if ownerKind != "" {
		version := map[string]string{"Job": "batch/v1", "CloneSet": "apps.kruise.io/v1alpha1"}[ownerKind]
		if version == "" {
			version = "apps/v1"
		}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: ownerKind, Name: owner, UID: types.UID("uid-" + owner), Controller: &yes}}
	}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
	}
	b.pods = append(b.pods, p)
	m := b.metric(node)
	m.Status.PodsMetric = append(m.Status.PodsMetric, slov1alpha1.PodMetric{
		Namespace: "shop", Name: name, PodUsage: slov1alpha1.ResourceMap{Resources: use(cpu, memory)},
	})
}

func use(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// metric is a node's, made where it is missing.
func (b *bench) metric(node string) *slov1alpha1.NodeMetric {
	i := slices.IndexFunc(b.world.metrics, func(m slov1alpha1.NodeMetric) bool { return m.Name == node })
	if i < 0 {
		i = len(b.world.metrics)
		b.world.metrics = append(b.world.metrics, slov1alpha1.NodeMetric{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID("uid-" + node)}})
	}
	return &b.world.metrics[i]
}

// owned puts an object that the API server knows: "Kind name", owned by another.
func (b *bench) owned(kind, name, byVersion, byKind, by string) {
	m := metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}
	if by != "" {
		yes := true
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: byVersion, Kind: byKind, Name: by, UID: "x", Controller: &yes}}
	}
	b.live[kind+" shop/"+name] = m
}

// told is what a Recommendation says: "container cpu lower..upper", and its conditions.
func (b *bench) told(name string) (containers, reasons []string) {
	for _, r := range b.recs {
		if r.Name != name {
			continue
		}
		for _, c := range r.Status.Conditions {
			reasons = append(reasons, c.Reason)
		}
		if r.Status.PodStatus == nil {
			continue
		}
		for _, c := range r.Status.PodStatus.ContainerStatuses {
			containers = append(containers, fmt.Sprintf("%s %s %s..%s %s %s..%s", c.ContainerName, c.Resources.Cpu(), c.LowerBound.Cpu(), c.UpperBound.Cpu(),
				c.Resources.Memory(), c.LowerBound.Memory(), c.UpperBound.Memory()))
		}
	}
	return containers, reasons
}
