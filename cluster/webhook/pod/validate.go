// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"context"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
	"github.com/koord-rt/koord-rt/policy/profile"
)

// validator refuses pods and changes to them.
type validator struct {
	cluster
	decoder admission.Decoder
	options Options
	limits  protocol.PodLimits
	answers *answer.Answers
	wait    time.Duration // for quotas that the cache does not know yet
}

// Handle checks a new pod, what an update of it or of its status changes, and what a resize leaves.
func (v *validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	pod, old := &corev1.Pod{}, &corev1.Pod{}
	if err := v.decoder.DecodeRaw(req.Object, pod); err != nil {
		logf.FromContext(ctx).Info("a pod cannot be decoded") // the error can quote it
		return v.answers.Open(validating, "decode", "the pod cannot be decoded")
	}
	pod.Namespace = req.Namespace
	var problems []profile.Problem
	var warnings []string
	switch {
	case req.Operation == admissionv1.Create && req.SubResource == "":
		problems, warnings = v.checkNew(ctx, req, pod)
	// A write of the status keeps labels and annotations as well, and has the stored pod's spec here.
	case req.Operation == admissionv1.Update && (req.SubResource == "" || req.SubResource == "status"):
		if err := v.decoder.DecodeRaw(req.OldObject, old); err != nil {
			return v.answers.Open(validating, "decode", "the old pod cannot be decoded")
		}
		problems, warnings = v.checkUpdate(ctx, req, pod, old)
	case req.Operation == admissionv1.Update && req.SubResource == "resize":
		if err := v.decoder.DecodeRaw(req.OldObject, old); err != nil {
			return v.answers.Open(validating, "decode", "the old pod cannot be decoded")
		}
		problems, warnings = v.checkResize(ctx, pod, old)
	}
	if len(problems) == 0 {
		return admission.Allowed("").WithWarnings(warnings...)
	}
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = p.String()
	}
	logf.FromContext(ctx).Info("pod refused", "problems", answer.Few(texts))
	return v.answers.Refuse(validating, texts)
}

// checkNew: refusing the mirror of a static pod would not stop it, so only its annotations are checked.
func (v *validator) checkNew(ctx context.Context, req admission.Request, pod *corev1.Pod) ([]profile.Problem, []string) {
	problems := profile.CheckTrust(pod.Annotations, nil, v.asker(ctx, req, pod.Annotations, nil))
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return problems, nil
	}
	value := read(pod)
	problems = append(problems, profile.CheckExtended(&value)...)
	problems = append(problems, profile.Check(&value)...)
	if v.options.CheckDevices {
		problems = append(problems, profile.CheckDevices(&value)...)
	}
	more, warnings := v.checkQuota(ctx, &value, func(q *profile.Quota) []profile.Problem { return profile.CheckQuota(&value, q, v.options.Quota) })
	return append(problems, more...), warnings
}

func (v *validator) checkUpdate(ctx context.Context, req admission.Request, pod, old *corev1.Pod) (problems []profile.Problem, warnings []string) {
	now, was := read(pod), read(old)
	if name := pod.Labels[protocol.LabelQuotaName]; name != "" && name != old.Labels[protocol.LabelQuotaName] {
		// It is there already: it must only not join a parent.
		problems, warnings = v.checkQuota(ctx, &now, func(q *profile.Quota) []profile.Problem {
			q.Max, q.Hard = nil, nil
			return profile.CheckQuota(&now, q, v.options.Quota)
		})
	}
	problems = append(problems, profile.CheckUpdate(&now, &was, !v.options.FreePriority)...)
	problems = append(problems, profile.CheckTrust(pod.Annotations, old.Annotations, v.asker(ctx, req, pod.Annotations, old.Annotations))...)
	return problems, warnings
}

// checkResize: whole CPUs stay whole, and nobody grows beyond what the quota may ever have.
func (v *validator) checkResize(ctx context.Context, pod, old *corev1.Pod) ([]profile.Problem, []string) {
	now, was := read(pod), read(old)
	problems := now.CheckCPUs()
	more, warnings := v.checkQuota(ctx, &now, func(q *profile.Quota) []profile.Problem { return profile.CheckResize(&now, &was, q, v.options.Quota) })
	return append(problems, more...), warnings
}

// asker is who asks, and what the namespace allows, read only if the pod has an annotation that it can forbid. A namespace that
// cannot be read has the cluster's limits; one whose annotation cannot be read allows nothing.
func (v *validator) asker(ctx context.Context, req admission.Request, annotations, old map[string]string) profile.Asker {
	out := profile.Asker{
		Scheduler: slices.Contains(v.options.Schedulers, req.UserInfo.Username), Namespace: req.Namespace, Limits: v.limits,
	}
	if !profile.Concerned(annotations, old) {
		return out
	}
	ns, err := v.namespace(ctx, req.Namespace)
	if err != nil {
		v.answers.Count(validating, "namespace")
		logf.FromContext(ctx).Error(err, "the cluster's limits are used for a pod")
		return out
	}
	text, ok := ns.Annotations[protocol.AnnotationPodLimits]
	if !ok {
		return out
	}
	if out.Limits, err = protocol.ParsePodLimits(text); err != nil {
		logf.FromContext(ctx).Error(err, "a namespace's limits cannot be read, so its pods may carry nothing", "namespace", req.Namespace,
			"annotation", protocol.AnnotationPodLimits)
	}
	return out
}
