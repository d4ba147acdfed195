// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package quota is the admission of ElasticQuotas of all three groups, and of ElasticQuotaProfiles: what contradicts itself, its parent,
// its children or its neighbours is refused, and a new quota of the canonical group gets its parent and the id of its tree.
//
// Inputs are admission requests, and quotas and pods with a quota's name from the cache of the manager; outputs are refusals, warnings
// and a patch of two labels. It asks the API server for nothing and keeps nothing: two that come at the same moment can each pass and not
// fit together, which the scheduler bears by scaling. It may import cluster/webhook/answer and
// cluster/internal/{quantity,quotas,rootquota}, no other room of cluster.
package quota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/koord-rt/koord-rt/api/protocol"
	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/quantity"
	"github.com/koord-rt/koord-rt/cluster/internal/quotas"
	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
)

// Paths of the webhooks; those of quotas are upstream's.
const (
	MutatePath   = "/mutate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"
	ValidatePath = "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"
	ProfilePath  = "/validate-quota-koordinator-sh-v1alpha1-elasticquotaprofile"
)

// Names of the webhooks in metrics.
const (
	mutating   = "mutate-elasticquota"
	validating = "validate-elasticquota"
	profiling  = "validate-elasticquotaprofile"
)

// Options are what an administrator sets.
type Options struct {
	// LooseKeys lets a child limit fewer resources than its parent (gate ElasticQuotaEnableUpdateResourceKey).
	LooseKeys bool
}

// Add registers the webhooks at the manager's server.
func Add(mgr ctrl.Manager, o Options, answers *answer.Answers) error {
	if answers == nil {
		return errors.New("add quota webhooks: no answers given")
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return warm(ctx, mgr.GetCache()) })); err != nil {
		return fmt.Errorf("add quota webhooks: %w", err)
	}
	s := &state{cached: mgr.GetClient(), loose: o.LooseKeys, wait: quotas.Settling}
	server := mgr.GetWebhookServer()
	server.Register(MutatePath, &webhook.Admission{Handler: answers.Guard(mutating, &mutator{state: s, answers: answers})})
	server.Register(ValidatePath, &webhook.Admission{Handler: answers.Guard(validating, &validator{state: s, answers: answers})})
	server.Register(ProfilePath, &webhook.Admission{Handler: answers.Guard(profiling, &profiler{answers: answers})})
	return nil
}

// object is an ElasticQuota of any group: all have one content.
type object struct {
	Metadata metav1.ObjectMeta             `json:"metadata"`
	Spec     sigsv1alpha1.ElasticQuotaSpec `json:"spec"`
	Status   struct {
		Used corev1.ResourceList `json:"used"`
	} `json:"status"`
}

func decode(req *admission.Request, raw []byte) (Quota, []string, error) {
	var o object
	if err := quantity.Unmarshal(raw, &o); err != nil {
		return Quota{}, nil, err
	}
	q, problems := o.read(req)
	return q, problems, nil
}

// decodeOld decodes a quota as it is stored. One from before its amounts had bounds is known by its metadata: whoever corrects or deletes
// it is checked all the same.
func decodeOld(req *admission.Request) (Quota, []string, error) {
	q, problems, err := decode(req, req.OldObject.Raw)
	if !errors.Is(err, quantity.ErrNumber) {
		return q, problems, err
	}
	var o object
	if err := json.Unmarshal(req.OldObject.Raw, &struct {
		Metadata *metav1.ObjectMeta `json:"metadata"`
	}{&o.Metadata}); err != nil {
		return Quota{}, nil, err
	}
	q, problems = o.read(req)
	return q, problems, nil
}

func (o *object) read(req *admission.Request) (Quota, []string) {
	o.Metadata.Namespace = req.Namespace
	if req.Name != "" { // a name that is to be generated is only in the object
		o.Metadata.Name = req.Name
	}
	return Read(req.Resource.Group, &o.Metadata, &o.Spec, o.Status.Used)
}

type validator struct {
	*state
	answers *answer.Answers
}

// Handle refuses quotas that cannot be kept, changes that break others, and deletions that leave children or pods behind.
func (v *validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	refused, told, err := v.check(ctx, &req)
	switch {
	case errors.Is(err, errDecode):
		return v.answers.Open(validating, "decode", "the ElasticQuota cannot be decoded")
	case err != nil:
		logf.FromContext(ctx).Error(err, "a quota is let pass unchecked")
		return v.answers.Open(validating, "cache", "the other quotas cannot be read")
	}
	out := admission.Allowed("")
	if len(refused) > 0 {
		logf.FromContext(ctx).Info("quota refused", "problems", answer.Few(refused))
		out = v.answers.Refuse(validating, refused)
	}
	for _, p := range answer.Few(told) {
		out.Warnings = append(out.Warnings, "koord-manager: it was wrong before: "+p)
	}
	return out
}

var errDecode = errors.New("cannot be decoded")

func (v *validator) check(ctx context.Context, req *admission.Request) (refused, told []string, err error) {
	if req.Operation == admissionv1.Delete {
		q, _, err := decodeOld(req)
		if err != nil {
			return nil, nil, errDecode
		}
		refused, err = v.settle(ctx, func(t *Tree) ([]string, error) {
			pods, err := v.pods(ctx, q.Name)
			return t.CheckDelete(&q, pods), err
		})
		return refused, nil, err
	}
	now, unreadable, err := decode(req, req.Object.Raw)
	switch {
	case errors.Is(err, quantity.ErrNumber):
		return []string{err.Error()}, nil, nil
	case err != nil:
		return nil, nil, errDecode
	}
	if req.Operation == admissionv1.Create {
		if refused = append(unreadable, CheckSelf(&now)...); len(refused) > 0 {
			return refused, nil, nil
		}
		refused, err = v.settle(ctx, func(t *Tree) ([]string, error) { return t.CheckNew(&now), nil })
		return refused, nil, err
	}
	was, before, err := decodeOld(req)
	if err != nil {
		return nil, nil, errDecode
	}
	for _, p := range unreadable {
		if !slices.Contains(before, p) {
			return []string{p}, nil, nil
		}
	}
	refused, err = v.settle(ctx, func(t *Tree) (refused []string, err error) {
		var pods []string
		if now.IsParent != was.IsParent {
			if pods, err = v.pods(ctx, now.Name); err != nil {
				return nil, err
			}
		}
		refused, told = t.CheckChange(&now, &was, pods)
		return refused, nil
	})
	return refused, told, err
}

type mutator struct {
	*state
	answers *answer.Answers
}

// Handle gives a new quota its parent and the id of its tree. Shared-weight stays as it is: without it max counts, also when it is changed.
func (m *mutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.Name == protocol.QuotaRoot {
		return admission.Allowed("")
	}
	var o object
	switch err := quantity.Unmarshal(req.Object.Raw, &o); {
	case errors.Is(err, quantity.ErrNumber):
		return m.answers.Refuse(mutating, []string{err.Error()})
	case err != nil:
		return m.answers.Open(mutating, "decode", "the ElasticQuota cannot be decoded")
	}
	labels := map[string]string{}
	parent := o.Metadata.Labels[protocol.LabelQuotaParent]
	if parent == "" {
		labels[protocol.LabelQuotaParent] = protocol.QuotaRoot
	} else if parent != protocol.QuotaRoot && o.Metadata.Labels[protocol.LabelQuotaTreeID] == "" {
		_, err := m.settle(ctx, func(t *Tree) ([]string, error) {
			p := t.find(parent)
			if p == nil {
				return []string{"no parent"}, nil // the validating webhook says so
			}
			if p.Tree != "" {
				labels[protocol.LabelQuotaTreeID] = p.Tree
			}
			return nil, nil
		})
		if err != nil {
			logf.FromContext(ctx).Error(err, "a quota gets no tree id")
			return m.answers.Open(mutating, "cache", "the other quotas cannot be read")
		}
	}
	return patched(m.answers, o.Metadata.Labels == nil, labels)
}

// patched adds labels.
func patched(a *answer.Answers, bare bool, labels map[string]string) admission.Response {
	if len(labels) == 0 {
		return admission.Allowed("")
	}
	type step struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	var steps []step
	if bare {
		steps = append(steps, step{"add", "/metadata/labels", labels})
	} else {
		for key, value := range labels {
			steps = append(steps, step{"add", "/metadata/labels/" + strings.ReplaceAll(key, "/", "~1"), value})
		}
	}
	text, err := json.Marshal(steps)
	if err != nil {
		return a.Open(mutating, "encode", "the change cannot be expressed as a patch")
	}
	kind := admissionv1.PatchTypeJSONPatch
	out := admission.Allowed("")
	out.Patch, out.PatchType = text, &kind
	return out
}
