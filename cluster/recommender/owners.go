// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package recommender

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/koord-rt/koord-rt/api/analysis/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/kept"
)

// budget is how many owners are asked for in one pass; the others wait for the next ones.
const budget = 500

var errBudget = errors.New("more owners of pods to ask for than one pass does; the others follow")

// workload is who may own pods, directly or through another.
type workload struct{ group, kind, name string }

// lookable are the kinds that are asked for when they have no pods, to tell whether they exist.
var lookable = map[string]schema.GroupVersionKind{
	"Deployment":            {Group: "apps", Version: "v1", Kind: "Deployment"},
	"StatefulSet":           {Group: "apps", Version: "v1", Kind: "StatefulSet"},
	"DaemonSet":             {Group: "apps", Version: "v1", Kind: "DaemonSet"},
	"ReplicaSet":            {Group: "apps", Version: "v1", Kind: "ReplicaSet"},
	"Job":                   {Group: "batch", Version: "v1", Kind: "Job"},
	"CronJob":               {Group: "batch", Version: "v1", Kind: "CronJob"},
	"ReplicationController": {Version: "v1", Kind: "ReplicationController"},
}

// between are the kinds that stand between pods and what people write.
var between = map[schema.GroupKind]string{{Group: "apps", Kind: "ReplicaSet"}: "v1", {Group: "batch", Kind: "Job"}: "v1"}

// owners knows whose pods are whose. A pod names its owner; what owns that one (a Deployment its ReplicaSet, a CronJob its Job) is asked
// once for each ReplicaSet or Job, and kept for as long as one of its pods lasts. One that nobody owns is asked again after a while: a
// Deployment that is made anew adopts it.
type owners struct {
	live   client.Reader
	now    time.Time
	left   int
	parent map[types.UID]*parent
	used   map[types.UID]bool
	// chosen are the pods of selectors by the Recommendation's UID.
	chosen map[types.UID]*choice
}

// orphaned is how long something without an owner counts as such, and what nobody asks for is kept while some pods are not known.
const orphaned = time.Hour

// parent is what owns something, the zero workload for nothing.
type parent struct {
	workload
	asked, used time.Time
}

// choice is what a selector selects.
type choice struct {
	at, used   time.Time
	generation int64
	pods       map[types.UID]bool
}

func newOwners(live client.Reader) *owners {
	return &owners{live: live, parent: map[types.UID]*parent{}, chosen: map[types.UID]*choice{}}
}

// begin starts a pass, end forgets what nobody has asked for in it, or, where not all could be asked, for long.
func (o *owners) begin(now time.Time) { o.now, o.left, o.used = now, budget, map[types.UID]bool{} }

func (o *owners) end(whole bool) {
	idle := func(uid types.UID, last *time.Time) bool {
		if o.used[uid] {
			*last = o.now
			return false
		}
		return whole || passed(o.now, *last, orphaned)
	}
	maps.DeleteFunc(o.parent, func(uid types.UID, p *parent) bool { return idle(uid, &p.used) })
	maps.DeleteFunc(o.chosen, func(uid types.UID, c *choice) bool { return idle(uid, &c.used) })
}

// passed reports whether so long has passed since, or the clock has gone back.
func passed(now, since time.Time, long time.Duration) bool {
	return now.Before(since) || now.Sub(since) >= long
}

// want prepares a target: the pods of a selector are asked for every few minutes, all at once.
func (o *owners) want(ctx context.Context, f *found) error {
	t := &f.object.Spec.Target
	switch {
	case t.Type == v1alpha1.TargetWorkload && t.Workload != nil && t.Workload.Kind != "" && t.Workload.Name != "":
		return nil
	case t.Type != v1alpha1.TargetPodSelector || t.PodSelector == nil:
		f.invalid = "target has no " + string(t.Type)
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(t.PodSelector)
	if err != nil {
		f.invalid = "target.podSelector: " + err.Error()
		return nil
	}
	uid := f.object.UID
	o.used[uid] = true
	if c := o.chosen[uid]; c != nil && c.generation == f.object.Generation && !passed(o.now, c.at, askAgain) {
		return nil
	}
	pods, err := o.selected(ctx, f.object.Namespace, selector)
	if err != nil {
		return fmt.Errorf("look for the pods of Recommendation %s: %w", f.object.Name, err) // what was known holds
	}
	o.chosen[uid] = &choice{at: o.now, generation: f.object.Generation, pods: pods}
	return nil
}

// selected asks for pods by their labels, which the cache does not hold. Version 0 is what the API server has in memory.
func (o *owners) selected(ctx context.Context, namespace string, selector labels.Selector) (map[types.UID]bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "PodList"})
	err := o.live.List(ctx, list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
	if err != nil {
		return nil, fmt.Errorf("list by its selector: %w", err)
	}
	out := make(map[types.UID]bool, len(list.Items))
	for i := range list.Items {
		out[list.Items[i].UID] = true
	}
	return out, nil
}

// targets are the Recommendations of a namespace by what their pods show.
type targets struct {
	workloads map[target][]*found
	pods      map[types.UID][]*found // of selectors
	// above has the kinds between whose owners some target may be.
	above map[string]bool
}

type target struct{ kind, name string }

// targetsOf looks at the targets of a namespace. An error leaves one out.
func (o *owners) targetsOf(ctx context.Context, of []*found) (targets, error) {
	out := targets{workloads: map[target][]*found{}, pods: map[types.UID][]*found{}, above: map[string]bool{}}
	var first error // one of many says enough
	for _, f := range of {
		if err := o.want(ctx, f); err != nil && first == nil {
			first = err
		}
		t := &f.object.Spec.Target
		switch {
		case f.invalid != "":
		case t.Type == v1alpha1.TargetWorkload:
			key := target{t.Workload.Kind, t.Workload.Name}
			out.workloads[key] = append(out.workloads[key], f)
			for kind := range between {
				out.above[kind.Kind] = out.above[kind.Kind] || mayOwn(t.Workload.Kind, kind.Kind)
			}
		default:
			if c := o.chosen[f.object.UID]; c != nil && c.generation == f.object.Generation {
				for uid := range c.pods {
					out.pods[uid] = append(out.pods[uid], f)
				}
			}
		}
	}
	return out, first
}

// of are the Recommendations that mean a pod: by a selector, by its name, its controller, or what owns that one. An error leaves the last
// of these out.
func (o *owners) of(ctx context.Context, p *kept.Pod, t *targets) ([]*found, error) {
	out := slices.Clone(t.pods[p.UID])
	add := func(w workload) {
		for _, f := range t.workloads[target{w.kind, w.name}] {
			if means(f.object.Spec.Target.Workload, w) {
				out = append(out, f)
			}
		}
	}
	add(workload{kind: "Pod", name: p.Name})
	owner, is := p.Owner()
	if !is {
		return out, nil
	}
	direct := workloadOf(owner.APIVersion, owner.Kind, owner.Name)
	add(direct)
	version := between[schema.GroupKind{Group: direct.group, Kind: direct.kind}]
	if version == "" || !t.above[direct.kind] {
		return out, nil
	}
	parent, err := o.parentOf(ctx, p.Namespace, direct, version, types.UID(owner.UID))
	add(parent)
	return out, err
}

// mayOwn reports whether objects of a kind can own those of the kind between.
func mayOwn(kind, between string) bool {
	switch kind {
	case "Deployment":
		return between == "ReplicaSet"
	case "CronJob":
		return between == "Job"
	case "Pod", "ReplicaSet", "Job", "StatefulSet", "DaemonSet", "ReplicationController":
		return false
	}
	return true // somebody's own
}

func workloadOf(apiVersion, kind, name string) workload {
	group, _ := schema.ParseGroupVersion(apiVersion)
	return workload{group: group.Group, kind: kind, name: name}
}

// parentOf asks once; what has no owner, or has gone, is remembered as such.
func (o *owners) parentOf(ctx context.Context, namespace string, w workload, version string, uid types.UID) (workload, error) {
	o.used[uid] = true
	if known, ok := o.parent[uid]; ok && (known.workload != (workload{}) || !passed(o.now, known.asked, orphaned)) {
		return known.workload, nil
	}
	if o.left--; o.left < 0 {
		return workload{}, errBudget
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: w.group, Version: version, Kind: w.kind})
	err := o.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: w.name}, object)
	if client.IgnoreNotFound(err) != nil {
		return workload{}, fmt.Errorf("ask who owns %s %s: %w", w.kind, w.name, err)
	}
	var found workload
	if ref := metav1.GetControllerOf(object); err == nil && object.UID == uid && ref != nil {
		found = workloadOf(ref.APIVersion, ref.Kind, ref.Name)
	}
	o.parent[uid] = &parent{workload: found, asked: o.now}
	return found, nil
}

// means reports whether a reference means a workload; without apiVersion it does in any group, and any version is the same.
func means(ref *v1alpha1.CrossVersionObjectReference, w workload) bool {
	if ref.Kind != w.kind || ref.Name != w.name {
		return false
	}
	group, err := schema.ParseGroupVersion(ref.APIVersion)
	return ref.APIVersion == "" || err == nil && group.Group == w.group
}

// missing reports whether a workload without pods does not exist; false too where nobody can tell.
func (o *owners) missing(ctx context.Context, r *v1alpha1.Recommendation) (bool, error) {
	ref := r.Spec.Target.Workload
	if r.Spec.Target.Type != v1alpha1.TargetWorkload || ref == nil {
		return false, nil
	}
	kind, known := lookable[ref.Kind]
	if !known || !means(ref, workload{group: kind.Group, kind: ref.Kind, name: ref.Name}) {
		return false, nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	err := o.live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: ref.Name}, object)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("look for %s %s: %w", ref.Kind, ref.Name, err)
	}
	return apierrors.IsNotFound(err), nil
}
