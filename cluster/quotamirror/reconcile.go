// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package quotamirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	koordinatorv1alpha1 "github.com/koord-rt/koord-rt/api/koordinator/v1alpha1"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/ownership"
	"github.com/koord-rt/koord-rt/cluster/internal/unseen"
)

// Name of the controller, as --controllers has it.
const Name = "quotamirror"

// manager is the field manager of what is written.
const manager = "koord-manager"

// Add makes the controller. Quotas of all groups of one namespace and name are one thing to look at. The manager's cache keeps the managed fields
// of canonical ElasticQuotas.
func Add(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named(Name).
		For(&koordinatorv1alpha1.ElasticQuota{}).
		Watches(&quotav1alpha1.ElasticQuota{}, &handler.EnqueueRequestForObject{}).
		Watches(&sigsv1alpha1.ElasticQuota{}, &handler.EnqueueRequestForObject{}).
		Complete(&reconciler{client: mgr.GetClient()})
	if err != nil {
		return fmt.Errorf("set up the controller %s: %w", Name, err)
	}
	return nil
}

// reconciler is the thin part around [Decide].
type reconciler struct {
	client client.Client
	unseen unseen.Writes[object]
}

// object is a quota of a group.
type object struct {
	group string
	client.ObjectKey
}

// Reconcile looks at the quotas of one namespace and name.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	sources, err := r.sources(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	stored := &sigsv1alpha1.ElasticQuota{}
	if err := r.client.Get(ctx, req.NamespacedName, stored); apierrors.IsNotFound(err) {
		stored = nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("read ElasticQuota %s of %s: %w", req.NamespacedName, sigsv1alpha1.GroupVersion.Group, err)
	}
	if r.behind(req.NamespacedName, sources, stored) {
		return ctrl.Result{RequeueAfter: unseen.Again}, nil
	}
	for i := range sources {
		s := &sources[i]
		plan, err := Decide(s, stored, metav1.Now())
		if err != nil {
			return ctrl.Result{}, err
		}
		if err := r.write(ctx, s, stored, &plan); err != nil {
			return ctrl.Result{}, err
		}
		if stored == nil && plan.Mirror != nil {
			break // the mirror's coming is seen, and the next one of the name looked at then
		}
	}
	return ctrl.Result{}, nil
}

// behind reports whether the cache has one of them as it was before it was written last. What is not there is not waited for: a mirror that has
// come meanwhile is not made again, and a source that has gone is not written.
func (r *reconciler) behind(key client.ObjectKey, sources []Source, stored *sigsv1alpha1.ElasticQuota) bool {
	there := map[string]metav1.Object{}
	for i := range sources {
		there[sources[i].Version.Group] = sources[i].Meta
	}
	if stored != nil {
		there[sigsv1alpha1.GroupVersion.Group] = stored
	}
	is := false
	for _, group := range []string{koordinatorv1alpha1.GroupVersion.Group, quotav1alpha1.GroupVersion.Group, sigsv1alpha1.GroupVersion.Group} {
		if o, has := there[group]; !has {
			r.unseen.Forget(object{group, key})
		} else if r.unseen.Behind(object{group, key}, o) {
			is = true
		}
	}
	return is
}

// sources are the quotas of the documents' groups by that name.
func (r *reconciler) sources(ctx context.Context, key client.ObjectKey) ([]Source, error) {
	var out []Source
	var koord koordinatorv1alpha1.ElasticQuota
	if err := r.client.Get(ctx, key, &koord); err == nil {
		out = append(out, Source{koordinatorv1alpha1.GroupVersion, &koord.ObjectMeta, koord.Canonical(), koord.Status})
	} else if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read ElasticQuota %s of %s: %w", key, koordinatorv1alpha1.GroupVersion.Group, err)
	}
	var team quotav1alpha1.ElasticQuota
	if err := r.client.Get(ctx, key, &team); err == nil {
		out = append(out, Source{quotav1alpha1.GroupVersion, &team.ObjectMeta, team.Canonical(), team.Status})
	} else if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read ElasticQuota %s of %s: %w", key, quotav1alpha1.GroupVersion.Group, err)
	}
	return out, nil
}

// write does what the plan says. A cache that is behind makes the API server refuse; what it does not know yet wakes the controller again, and
// until then what would be said of the mirror is not true.
func (r *reconciler) write(ctx context.Context, s *Source, stored *sigsv1alpha1.ElasticQuota, p *Plan) error {
	err := r.steps(ctx, s, stored, p)
	if outdated(err) {
		log.FromContext(ctx).V(1).Info("looked at again", "quota", s.String(), "reason", err.Error())
		return nil
	}
	return err
}

// outdated reports whether an API server refuses because an object is not the one that was read.
func outdated(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || ownership.Another(err)
}

// steps are those of the plan; the first that fails is the last.
func (r *reconciler) steps(ctx context.Context, s *Source, stored *sigsv1alpha1.ElasticQuota, p *Plan) error {
	if p.Mirror != nil {
		if err := r.mirror(ctx, stored, p.Mirror); err != nil {
			return r.refused(ctx, s, stored, fmt.Errorf("apply the mirror of %s: %w", s, err))
		}
	}
	if p.Drop != nil {
		if err := r.drop(ctx, stored, p.Drop); err != nil {
			return r.refused(ctx, s, stored, fmt.Errorf("take fields that it does not have out of the mirror of %s: %w", s, err))
		}
	}
	if p.Status != nil {
		if err := r.status(ctx, s, p.Status); err != nil {
			return fmt.Errorf("apply the status of %s: %w", s, err)
		}
	}
	return nil
}

// refused has the source say what an API server has against its mirror, and returns it: what is refused today may pass later. Of a server
// that does not answer nothing is said.
func (r *reconciler) refused(ctx context.Context, s *Source, stored *sigsv1alpha1.ElasticQuota, err error) error {
	if outdated(err) || !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return err
	}
	next := s.Refused(stored, err, metav1.Now())
	if next == nil {
		return err
	}
	if bad := r.status(ctx, s, next); bad != nil && !outdated(bad) {
		err = errors.Join(err, fmt.Errorf("apply the status of %s: %w", s, bad))
	}
	return err
}

func (r *reconciler) mirror(ctx context.Context, stored, wanted *sigsv1alpha1.ElasticQuota) error {
	spec, err := ownership.TreeOf(wanted.Spec)
	if err != nil {
		return fmt.Errorf("encode the spec: %w", err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(sigsv1alpha1.GroupVersion.WithKind(kind))
	u.SetNamespace(wanted.Namespace)
	u.SetName(wanted.Name)
	u.SetLabels(wanted.Labels)
	u.SetAnnotations(wanted.Annotations)
	u.SetOwnerReferences(wanted.OwnerReferences)
	if stored == nil {
		u.SetResourceVersion(ownership.Absent)
	} else {
		u.SetUID(stored.UID)
	}
	return r.wrote(u, r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager), client.ForceOwnership))
}

// wrote notes what an API server has answered, and returns the error.
func (r *reconciler) wrote(o client.Object, err error) error {
	if err == nil {
		r.unseen.Wrote(object{o.GetObjectKind().GroupVersionKind().Group, client.ObjectKeyFromObject(o)}, o)
	}
	return err
}

func (r *reconciler) drop(ctx context.Context, stored *sigsv1alpha1.ElasticQuota, fields ownership.Tree) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": stored.UID}, "spec": fields})
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	at := &sigsv1alpha1.ElasticQuota{ObjectMeta: metav1.ObjectMeta{Namespace: stored.Namespace, Name: stored.Name}}
	at.SetGroupVersionKind(sigsv1alpha1.GroupVersion.WithKind(kind))
	return r.wrote(at, r.client.Patch(ctx, at, client.RawPatch(types.MergePatchType, data), client.FieldOwner(manager)))
}

func (r *reconciler) status(ctx context.Context, s *Source, next *sigsv1alpha1.ElasticQuotaStatus) error {
	status, err := ownership.TreeOf(next)
	if err != nil {
		return fmt.Errorf("encode the status: %w", err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	u.SetGroupVersionKind(s.Version.WithKind(kind))
	u.SetNamespace(s.Meta.Namespace)
	u.SetName(s.Meta.Name)
	u.SetUID(s.Meta.UID)
	return r.wrote(u, r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager), client.ForceOwnership))
}
