// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package eviction keeps a node's agent from evicting pods of other nodes (D13): RBAC can grant it evictions of all pods or of
// none.
//
// Input is the eviction that an agent asks for, output yes or why not. It reads the pod from the API server itself: an answer that
// is a moment old would be wrong. It fails closed: what goes wrong here refuses, for API servers call it for agents only, whose
// next try comes by itself; nobody else's eviction depends on us. Deletions of pods, and the objects that an agent writes, are held to
// its node by packaging/manifests/policy-koordlet.yaml, without us. It may import cluster/webhook/answer, no other room of cluster.
package eviction

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
)

// Path of the webhook.
const Path = "/validate-pod-eviction"

// Name of the webhook in metrics.
const Name = "validate-pod-eviction"

// Options are who the agents are.
type Options struct {
	// Agents are the users that nodes' agents are, as system:serviceaccount:NAMESPACE:NAME.
	Agents []string
}

// Add registers the webhook at the manager's server.
func Add(mgr ctrl.Manager, o Options, answers *answer.Answers) error {
	if answers == nil {
		return errors.New("add eviction webhook: no answers given")
	}
	mgr.GetWebhookServer().Register(Path, &webhook.Admission{Handler: newHandler(mgr.GetAPIReader(), o, answers)})
	return nil
}

func newHandler(pods client.Reader, o Options, answers *answer.Answers) admission.Handler {
	return answers.GuardClosed(Name, &validator{pods: pods, options: o, answers: answers})
}

type validator struct {
	pods    client.Reader
	options Options
	answers *answer.Answers
}

// Handle refuses an agent what is not its node's.
func (v *validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if !slices.Contains(v.options.Agents, req.UserInfo.Username) || req.Operation != admissionv1.Create || req.SubResource != "eviction" {
		return admission.Allowed("")
	}
	var body policyv1.Eviction
	if err := json.Unmarshal(req.Object.Raw, &body); err != nil {
		return v.answers.Closed(Name, "decode", "the Eviction cannot be decoded")
	}
	ask := Ask{Agent: req.UserInfo.Username, Node: NodeOf(&req.UserInfo), Namespace: req.Namespace, Name: req.Name}
	if o := body.DeleteOptions; o != nil && o.Preconditions != nil && o.Preconditions.UID != nil {
		ask.UID = string(*o.Preconditions.UID)
	}
	if ask.Name == "" || body.Name != "" && body.Name != ask.Name {
		return v.answers.Refuse(Name, []string{"the Eviction names another pod than its address does: set metadata.name to the pod's name"})
	}
	pod, err := v.pod(ctx, ask)
	if err != nil {
		logf.FromContext(ctx).Error(err, "the pod that an agent wants evicted cannot be read", "pod", ask.Namespace+"/"+ask.Name)
		return v.answers.Closed(Name, "pod", "the pod cannot be read now")
	}
	if why := Check(ask, pod); why != "" {
		logf.FromContext(ctx).Info("eviction refused", "agent", ask.Agent, "node", ask.Node, "pod", ask.Namespace+"/"+ask.Name)
		return v.answers.Refuse(Name, []string{why})
	}
	return admission.Allowed("")
}

// pod reads what the decision goes by; nil where there is no such pod. Nothing is read for an agent that is refused in any case.
func (v *validator) pod(ctx context.Context, ask Ask) (*Pod, error) {
	if ask.Node == "" || ask.UID == "" {
		return nil, nil
	}
	var p corev1.Pod
	err := v.pods.Get(ctx, client.ObjectKey{Namespace: ask.Namespace, Name: ask.Name}, &p)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &Pod{UID: string(p.UID), Node: p.Spec.NodeName}, nil
}
