// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package quota

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cluster/internal/quotas"
)

// state reads quotas, and pods that name one, from the cache of the manager.
type state struct {
	cached client.Reader
	loose  bool
	wait   time.Duration
}

// tree reads all quotas; what of one cannot be read counts as absent.
func (s *state) tree(ctx context.Context) (*Tree, error) {
	list, err := quotas.List(ctx, s.cached)
	if err != nil {
		return nil, err
	}
	all := make([]Quota, len(list))
	for i, o := range list {
		all[i], _ = Read(o.Group, o.Meta, o.Spec, o.Used)
		all[i].Seed = o.Seed
	}
	return NewTree(all, s.loose), nil
}

// pods are those that name a quota by their label and have not ended.
func (s *state) pods(ctx context.Context, quota string) ([]string, error) {
	var l metav1.PartialObjectMetadataList
	l.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := s.cached.List(ctx, &l, client.MatchingLabels{protocol.LabelQuotaName: quota}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods of quota %s: %w", quota, err)
	}
	out := make([]string, len(l.Items))
	for i := range l.Items {
		out[i] = l.Items[i].Namespace + "/" + l.Items[i].Name
	}
	return out, nil
}

// settle asks again until nothing is refused any more, for a moment.
func (s *state) settle(ctx context.Context, ask func(*Tree) ([]string, error)) (refused []string, err error) {
	err = quotas.Settle(ctx, s.wait, func(ctx context.Context) (bool, error) {
		t, err := s.tree(ctx)
		if err == nil {
			refused, err = ask(t)
		}
		return len(refused) == 0, err
	})
	if err != nil {
		return nil, err
	}
	return refused, nil
}

// warm starts the watches, so that the first admission does not wait for them. A kind that is not served yet is watched by the first
// that asks for it once it is.
func warm(ctx context.Context, c cache.Cache) error {
	pods := &metav1.PartialObjectMetadata{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	for _, kind := range append(quotas.Kinds(), pods) {
		if _, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil && !meta.IsNoMatchError(err) && ctx.Err() == nil {
			logf.FromContext(ctx).Error(err, "cannot watch what quotas are admitted by", "kind", fmt.Sprintf("%T", kind))
		}
	}
	return nil
}
