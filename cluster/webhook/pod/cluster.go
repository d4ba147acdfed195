// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	configv1alpha1 "github.com/koord-rt/koord-rt/api/config/v1alpha1"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/profiles"
	"github.com/koord-rt/koord-rt/policy/profile"
)

// longest is how long the cache of a kind is waited for that cannot be read: the rest of an admission is worth more than what it tells,
// and has 3 s in all.
const longest = time.Second

// cluster answers what an admission asks beside the pod.
type cluster struct {
	// cached is the manager's cache itself, for its client asks the API server for what is kept as JSON; live asks the API server for what
	// the cache may not have seen yet.
	cached, live client.Reader
}

// namespace reads the pod's namespace. Pods often come right after their namespace, before the cache has it.
func (c cluster) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	var out corev1.Namespace
	err := c.cached.Get(ctx, client.ObjectKey{Name: name}, &out)
	if apierrors.IsNotFound(err) {
		err = c.live.Get(ctx, client.ObjectKey{Name: name}, &out)
	}
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return &out, nil
}

// class reads a PriorityClass, nil when there is none. It often comes in one file with the profile that names it and the first pods of that: a pod
// that the profile is not applied to stays so.
func (c cluster) class(ctx context.Context, name string) (*profile.Class, error) {
	if name == "" {
		return nil, nil
	}
	var pc schedulingv1.PriorityClass
	err := c.cached.Get(ctx, client.ObjectKey{Name: name}, &pc)
	if apierrors.IsNotFound(err) {
		err = c.live.Get(ctx, client.ObjectKey{Name: name}, &pc)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read PriorityClass %s: %w", name, err)
	}
	out := &profile.Class{Value: pc.Value}
	if pc.PreemptionPolicy != nil {
		out.PreemptionPolicy = string(*pc.PreemptionPolicy)
	}
	return out, nil
}

// warm starts the watches of what admissions read, so that the first of them does not wait for it. A kind that is not served yet
// is watched by the first that asks for it once it is.
func (o Options) warm(ctx context.Context, c cache.Cache) error {
	kinds := []client.Object{&corev1.Namespace{}, &schedulingv1.PriorityClass{}, &configv1alpha1.ClusterColocationProfile{}}
	if o.Trees {
		kinds = append(kinds, &quotav1alpha1.ElasticQuotaProfile{})
	}
	if o.SchedulerName != "" {
		kinds = append(kinds, rooms())
		for _, kind := range quotaKinds() {
			quota := &metav1.PartialObjectMetadata{}
			kind.Kind = strings.TrimSuffix(kind.Kind, "List")
			quota.SetGroupVersionKind(kind)
			kinds = append(kinds, quota)
		}
	}
	for _, kind := range kinds {
		if _, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil && !meta.IsNoMatchError(err) && ctx.Err() == nil {
			logf.FromContext(ctx).Error(err, "cannot watch what admissions read", "kind", fmt.Sprintf("%T", kind))
		}
	}
	return nil
}

// profiles reads all profiles, and their patches by name.
func (c cluster) profiles(ctx context.Context) ([]profile.Profile, map[string][]byte, error) {
	var list configv1alpha1.ClusterColocationProfileList
	err := c.cached.List(ctx, &list, client.UnsafeDisableDeepCopy)
	switch {
	case meta.IsNoMatchError(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("list ClusterColocationProfiles: %w", err)
	}
	out := make([]profile.Profile, len(list.Items))
	var patches map[string][]byte
	for i := range list.Items {
		item := &list.Items[i]
		out[i] = profiles.Of(item)
		if out[i].Patched {
			if patches == nil {
				patches = map[string][]byte{}
			}
			patches[item.Name] = item.Spec.Patch.Raw
		}
	}
	return out, patches, nil
}

// quotaKinds are the groups that ElasticQuota is served in (D1).
func quotaKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Group: "scheduling.sigs.k8s.io", Version: "v1alpha1", Kind: "ElasticQuotaList"},
		{Group: "koordinator.sh", Version: "v1alpha1", Kind: "ElasticQuotaList"},
		{Group: "quota.koordinator.sh", Version: "v1alpha1", Kind: "ElasticQuotaList"},
	}
}

// quota reports whether a namespace has an ElasticQuota of any group. A group that is not served has none.
func (c cluster) quota(ctx context.Context, namespace string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for _, kind := range quotaKinds() {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(kind)
		err := c.cached.List(ctx, &list, client.InNamespace(namespace), client.Limit(1), client.UnsafeDisableDeepCopy)
		switch {
		case meta.IsNoMatchError(err):
		case err != nil:
			return false, fmt.Errorf("list ElasticQuotas of %s: %w", kind.Group, err)
		case len(list.Items) > 0:
			return true, nil
		}
	}
	return false, nil
}

// reservations are those that pods can still come to, and how many are nobody's because their owners cannot be read.
func (c cluster) reservations(ctx context.Context) (out []profile.Reservation, broken int, err error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(schedulingv1alpha1.GroupVersion.WithKind("ReservationList"))
	err = c.cached.List(ctx, &list, client.UnsafeDisableDeepCopy)
	switch {
	case meta.IsNoMatchError(err):
		return nil, 0, nil
	case err != nil:
		return nil, 0, fmt.Errorf("list Reservations: %w", err)
	}
	ended := []schedulingv1alpha1.ReservationPhase{schedulingv1alpha1.ReservationSucceeded, schedulingv1alpha1.ReservationFailed}
	for i := range list.Items {
		item := &list.Items[i]
		phase, _, _ := unstructured.NestedString(item.Object, "status", "phase") // one that is no text has not ended
		if slices.Contains(ended, schedulingv1alpha1.ReservationPhase(phase)) {
			continue
		}
		var r room
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &r); err != nil {
			logf.FromContext(ctx).V(1).Info("a Reservation is nobody's, for its owners cannot be read", "reservation", item.GetName(), "problem", err.Error())
			broken++
			continue
		}
		out = append(out, profile.Reservation{Name: item.GetName(), Owners: owners(r.Spec.Owners)})
	}
	return out, broken, nil
}

// room is a Reservation as far as admissions read it.
type room struct {
	Spec struct {
		Owners []schedulingv1alpha1.ReservationOwner `json:"owners"`
	} `json:"spec"`
}

// rooms are Reservations as they are kept: as JSON, for their templates are open, and one that means nothing, or whose amounts take
// minutes to read, would else stop everybody who lists the kind.
func rooms() *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(schedulingv1alpha1.GroupVersion.WithKind("Reservation"))
	return out
}

// RoomOnly keeps of a Reservation what admissions read; it is for the cache, which keeps everything else as it is.
func RoomOnly(object any) any {
	r, is := object.(*unstructured.Unstructured)
	if !is || r.GroupVersionKind().GroupKind() != rooms().GroupVersionKind().GroupKind() {
		return object
	}
	owners, _, _ := unstructured.NestedFieldNoCopy(r.Object, "spec", "owners")
	phase, _, _ := unstructured.NestedFieldNoCopy(r.Object, "status", "phase")
	meta, _, _ := unstructured.NestedFieldNoCopy(r.Object, "metadata")
	kept := map[string]any{"apiVersion": r.GetAPIVersion(), "kind": r.GetKind(), "metadata": meta, "spec": map[string]any{"owners": owners}}
	if phase != nil {
		kept["status"] = map[string]any{"phase": phase}
	}
	return &unstructured.Unstructured{Object: kept}
}

func owners(list []schedulingv1alpha1.ReservationOwner) []profile.Owner {
	out := make([]profile.Owner, len(list))
	for i := range list {
		o := &list[i]
		out[i].Pods = profiles.Selector(o.LabelSelector)
		if r := o.Object; r != nil {
			out[i].Object = &profile.ObjectRef{Namespace: r.Namespace, Name: r.Name, UID: string(r.UID)}
		}
		if r := o.Controller; r != nil {
			out[i].Controller = &profile.ControllerRef{Namespace: r.Namespace, Controller: profile.Controller{
				APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: string(r.UID),
			}}
		}
	}
	return out
}
