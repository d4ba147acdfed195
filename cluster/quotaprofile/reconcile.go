// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package quotaprofile

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/koord-rt/koord-rt/api/protocol"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/ownership"
	"github.com/koord-rt/koord-rt/cluster/internal/rootquota"
	"github.com/koord-rt/koord-rt/daemon/logs"
)

// Name of the controller, as --controllers has it.
const Name = "quotaprofile"

// manager is the field manager of what is written.
const manager = "koord-manager"

// Add makes the controller. The manager's cache keeps the managed fields of ElasticQuotas.
func Add(mgr ctrl.Manager) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader())
	err := ctrl.NewControllerManagedBy(mgr).Named(Name).
		For(&quotav1alpha1.ElasticQuotaProfile{}, builder.WithPredicates(profileChanges())).
		Watches(&quotav1alpha1.ElasticQuotaProfile{}, r.onProfile(), builder.WithPredicates(profileChanges())).
		Watches(&corev1.Node{}, r.onNode()).
		Watches(&sigsv1alpha1.ElasticQuota{}, r.onQuota(), builder.WithPredicates(quotaChanges())).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller %s: %w", Name, err)
	}
	return nil
}

// reconciler is the thin part around [rootquota.Of].
type reconciler struct {
	client client.Client
	live   client.Reader // past the cache
	limit  *logs.Limiter
}

func newReconciler(c client.Client, live client.Reader) *reconciler {
	return &reconciler{client: c, live: live, limit: logs.NewLimiter(logs.LimiterOptions{Every: time.Hour})}
}

// Reconcile looks at one profile.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var p quotav1alpha1.ElasticQuotaProfile
	if err := r.client.Get(ctx, req.NamespacedName, &p); apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("read ElasticQuotaProfile %s: %w", req.NamespacedName, err)
	}
	if p.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	if other, err := r.before(ctx, &p); err != nil || other != "" {
		if err == nil {
			r.tell(ctx, &p, "profile "+other+" makes quota "+p.Spec.QuotaName+" already: choose another spec.quotaName")
		}
		return ctrl.Result{}, err
	}
	nodes, err := r.nodes(ctx, &p)
	if err != nil {
		return ctrl.Result{}, err
	}
	wanted, err := rootquota.Of(&p, nodes)
	if err != nil {
		r.tell(ctx, &p, err.Error())
		return ctrl.Result{}, nil // until the profile changes
	}
	if known, err := r.identify(ctx, &p); err != nil || !known {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.apply(ctx, &p, &wanted)
}

func (r *reconciler) tell(ctx context.Context, p *quotav1alpha1.ElasticQuotaProfile, problem string) {
	if ok, _ := r.limit.Allow(string(p.UID), problem); ok {
		log.FromContext(ctx).Info("an ElasticQuotaProfile makes no quota", "problem", problem)
	}
}

// before is another profile of the same quota whose name comes first, "" for none: two would write it in turns, for ever.
func (r *reconciler) before(ctx context.Context, p *quotav1alpha1.ElasticQuotaProfile) (string, error) {
	var list quotav1alpha1.ElasticQuotaProfileList
	if err := r.client.List(ctx, &list, client.InNamespace(p.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list ElasticQuotaProfiles of namespace %s: %w", p.Namespace, err)
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.Name < p.Name && o.Spec.QuotaName == p.Spec.QuotaName && o.DeletionTimestamp == nil {
			return o.Name, nil
		}
	}
	return "", nil
}

// nodes are those of the profile; none where its selector cannot be read, which [rootquota.Of] says.
func (r *reconciler) nodes(ctx context.Context, p *quotav1alpha1.ElasticQuotaProfile) ([]corev1.Node, error) {
	selector, err := metav1.LabelSelectorAsSelector(p.Spec.NodeSelector)
	if err != nil {
		return nil, nil
	}
	var list corev1.NodeList
	if err := r.client.List(ctx, &list, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes of ElasticQuotaProfile %s/%s: %w", p.Namespace, p.Name, err)
	}
	return list.Items, nil
}

// identify gives the profile the id of its tree, by which admission finds the tree's nodes. false is that it was just written, here or by somebody
// else, or that the profile has gone: the cache will say so, and until then a quota would be made and, at the label's own event, made again.
func (r *reconciler) identify(ctx context.Context, p *quotav1alpha1.ElasticQuotaProfile) (bool, error) {
	if p.Labels[protocol.LabelQuotaTreeID] != "" {
		return true, nil
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(quotav1alpha1.GroupVersion.WithKind("ElasticQuotaProfile"))
	u.SetNamespace(p.Namespace)
	u.SetName(p.Name)
	u.SetUID(p.UID) // makes no new one
	u.SetLabels(map[string]string{protocol.LabelQuotaTreeID: rootquota.Tree(p)})
	how := []client.ApplyOption{client.FieldOwner(manager)}
	if _, empty := p.Labels[protocol.LabelQuotaTreeID]; empty {
		// Who has written an empty id has given none, and would keep the profile from one for ever. As with upstream it is filled in; an id that
		// has come meanwhile is not written over.
		u.SetResourceVersion(p.ResourceVersion)
		how = append(how, client.ForceOwnership)
	}
	err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), how...)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), ownership.Another(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("apply label %s to ElasticQuotaProfile %s/%s: %w", protocol.LabelQuotaTreeID, p.Namespace, p.Name, err)
	}
	return false, nil
}

// apply writes the quota where something would change.
func (r *reconciler) apply(ctx context.Context, p *quotav1alpha1.ElasticQuotaProfile, wanted *rootquota.Quota) error {
	key := client.ObjectKey{Namespace: p.Namespace, Name: p.Spec.QuotaName}
	stored := &sigsv1alpha1.ElasticQuota{}
	if err := r.client.Get(ctx, key, stored); apierrors.IsNotFound(err) {
		stored = nil
	} else if err != nil {
		return fmt.Errorf("read ElasticQuota %s: %w", key, err)
	}
	spec, err := ownership.TreeOf(sigsv1alpha1.ElasticQuotaSpec{Min: wanted.Min, Max: wanted.Max})
	if err != nil {
		return fmt.Errorf("write the spec of ElasticQuota %s: %w", key, err)
	}
	if there, err := stands(stored, wanted, spec); err != nil || there {
		return err
	}
	if stored == nil {
		if is, err := r.lasts(ctx, p); err != nil || !is {
			return err
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(sigsv1alpha1.GroupVersion.WithKind("ElasticQuota"))
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	u.SetLabels(wanted.Labels)
	u.SetAnnotations(wanted.Annotations)
	if err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply ElasticQuota %s of ElasticQuotaProfile %s: %w", key, p.Name, err)
	}
	log.FromContext(ctx).V(1).Info("quota applied", "quota", key, "min", spec["min"])
	return nil
}

// lasts reports whether the API server still has the profile. A quota outlives it: one that was deleted with its profile, which the cache has not seen
// go, would come back for good.
func (r *reconciler) lasts(ctx context.Context, p *quotav1alpha1.ElasticQuotaProfile) (bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(quotav1alpha1.GroupVersion.WithKind("ElasticQuotaProfileList"))
	// A list, for which the right is there.
	if err := r.live.List(ctx, list, client.InNamespace(p.Namespace), client.MatchingFields{metav1.ObjectNameField: p.Name}); err != nil {
		return false, fmt.Errorf("look for ElasticQuotaProfile %s/%s: %w", p.Namespace, p.Name, err)
	}
	return len(list.Items) == 1 && list.Items[0].UID == p.UID, nil
}

// stands reports whether the quota is as it should be, and nothing of ours is left of what it was.
func stands(stored *sigsv1alpha1.ElasticQuota, wanted *rootquota.Quota, spec ownership.Tree) (bool, error) {
	if stored == nil {
		return false, nil
	}
	owners, err := ownership.OwnersOf(stored.ManagedFields, manager)
	if err != nil {
		return false, fmt.Errorf("ElasticQuota %s/%s: %w", stored.Namespace, stored.Name, err)
	}
	have, err := ownership.TreeOf(stored.Spec)
	if err != nil {
		return false, fmt.Errorf("read the spec of ElasticQuota %s/%s: %w", stored.Namespace, stored.Name, err)
	}
	owners.Others = nil // what is the profile's is nobody else's
	return !ownership.Decide(spec, have, owners, nil).Needed && held(stored.Labels, wanted.Labels, owners.MyLabels) &&
		held(stored.Annotations, wanted.Annotations, owners.MyAnnotations), nil
}

// held reports whether what is wanted stands there, and is all that was applied.
func held(stored, wanted map[string]string, mine map[string]bool) bool {
	for key, value := range wanted {
		if now, is := stored[key]; !is || now != value {
			return false
		}
	}
	return maps.EqualFunc(wanted, mine, func(string, bool) bool { return true })
}
