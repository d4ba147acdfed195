// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
	"github.com/koord-rt/koord-rt/policy/profile"
)

// mutator changes new pods.
type mutator struct {
	cluster
	name    string // in metrics
	decoder admission.Decoder
	options Options
	answers *answer.Answers
}

// Handle answers with a patch. It compares two encodings of our own, not ours with the request's: a field that a newer API
// server knows and we do not would be removed otherwise.
func (m *mutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.SubResource != "" {
		return admission.Allowed("")
	}
	pod := &corev1.Pod{}
	if err := m.decoder.Decode(req, pod); err != nil {
		logf.FromContext(ctx).Info("a new pod cannot be decoded") // the error can quote it
		return m.answers.Open(mutating, "decode", "the pod cannot be decoded")
	}
	if optedOut(pod) {
		return admission.Allowed("")
	}
	pod.Namespace = req.Namespace
	before := pod.DeepCopy()
	c := &change{mutator: m, pod: pod}
	c.run(ctx, string(req.UID))
	out := admission.Allowed("")
	if c.changed {
		old, err := json.Marshal(before)
		if err != nil {
			return m.answers.Open(mutating, "encode", "the pod cannot be encoded")
		}
		now, err := json.Marshal(c.pod)
		if err != nil {
			return m.answers.Open(mutating, "encode", "the changed pod cannot be encoded")
		}
		out = admission.PatchResponseFromRaw(old, now)
		if !out.Allowed {
			return m.answers.Open(mutating, "encode", "the change cannot be expressed as a patch")
		}
	}
	return out.WithWarnings(c.warnings...)
}

// optedOut: the whole pod is to be left alone.
func optedOut(p *corev1.Pod) bool {
	return p.Labels[protocol.KeyOptOut] == "true" || p.Annotations[protocol.KeyOptOut] == "true"
}

// change is the work on one pod.
type change struct {
	*mutator
	pod      *corev1.Pod
	value    profile.Pod
	changed  bool
	warnings []string
}

// warn tells the user, the log and the counter what was not done.
func (c *change) warn(ctx context.Context, reason string, err error) {
	c.answers.Count(c.name, reason)
	c.warnings = append(c.warnings, "koord-manager: "+err.Error())
	logf.FromContext(ctx).Info("changed in part only", "webhook", c.name, "reason", reason, "problem", err.Error())
}

// run does the steps in upstream's order: profiles, requests, extended-resource-spec, devices; then the scheduler, and the nodes of the
// quota's tree, which only a pod with a label or of a scheduler that knows quotas comes to.
func (c *change) run(ctx context.Context, draw string) {
	c.value = read(c.pod)
	c.applyProfiles(ctx, draw)
	if !c.options.KeepExtended {
		changed, err := profile.AnnotateExtended(&c.value)
		c.changed = c.changed || changed
		if err != nil {
			c.warn(ctx, "extended", fmt.Errorf("annotation %s: %w", protocol.AnnotationExtendedResource, err))
		}
	}
	if !c.options.KeepDevices {
		if err := profile.Devices(&c.value); err != nil {
			c.warn(ctx, "devices", fmt.Errorf("device requests: %w", err))
		}
	}
	c.schedule(ctx)
	c.treeNodes(ctx)
	c.changed = c.changed || c.value.Resources
	if err := write(&c.value, c.pod); err != nil {
		c.warn(ctx, "resources", err)
	}
}

// applyProfiles applies what selects the pod, and translates its requests.
func (c *change) applyProfiles(ctx context.Context, draw string) {
	list, patches, err := c.profiles(ctx)
	if err != nil {
		c.warn(ctx, "profiles", err)
		return
	}
	if len(list) == 0 {
		return
	}
	labels := sync.OnceValues(func() (map[string]string, error) { // many profiles ask for it
		if c.pod.Namespace == "" {
			return nil, errors.New("it selects by namespace, and the template names none")
		}
		ns, err := c.namespace(ctx, c.pod.Namespace)
		if err != nil {
			return nil, err
		}
		return ns.Labels, nil
	})
	choice := profile.Choose(&c.value, labels, list, draw)
	for _, broken := range choice.Broken { // the profile's author is to know, not everybody who makes a pod
		c.answers.Count(c.name, "broken-profile")
		logf.FromContext(ctx).Info("a ClusterColocationProfile means nothing", "problem", broken.String())
	}
	for _, problem := range choice.Problems {
		c.warn(ctx, "namespace", errors.New(problem.String()))
	}
	for _, a := range choice.Apply {
		if err := c.apply(ctx, a, patches[a.Name]); err != nil {
			c.warn(ctx, "profile", fmt.Errorf("profile %s is not applied: %w", a.Name, err))
			choice.Record = slices.DeleteFunc(choice.Record, func(s string) bool { return s == a.Name })
		}
	}
	if len(choice.Record) > 0 {
		c.value.Annotate(protocol.AnnotationProfiles, strings.Join(choice.Record, ","))
		c.changed = true
	}
	if choice.Translate && !c.options.KeepRequests {
		if err := profile.Translate(&c.value); err != nil {
			c.warn(ctx, "translate", err)
		}
	}
}

// apply applies one profile with its patch, or nothing of it.
func (c *change) apply(ctx context.Context, a profile.Application, patch []byte) error {
	class, err := c.class(ctx, a.PriorityClassName)
	if err != nil {
		return err
	}
	var saved *corev1.Pod
	if a.Patched {
		if err := write(&c.value, c.pod); err != nil {
			return err
		}
		saved = c.pod.DeepCopy()
	}
	problems, err := profile.Apply(&c.value, a, class)
	if err != nil {
		return err
	}
	for _, p := range problems {
		c.warn(ctx, "profile", errors.New(p.String()))
	}
	c.changed = true
	if !a.Patched {
		return nil
	}
	if err = write(&c.value, c.pod); err == nil {
		var next *corev1.Pod
		if next, err = patched(c.pod, patch); err == nil {
			c.pod = next
		}
	}
	if err != nil {
		c.pod = saved
	}
	c.value = read(c.pod)
	return err
}

// schedule gives the pod to our scheduler if it needs it.
func (c *change) schedule(ctx context.Context) {
	reason, err := profile.Schedule(&c.value, c.options.SchedulerName, profile.Surroundings{
		Quota: func() (bool, error) { return c.quota(ctx, c.pod.Namespace) },
		Reservations: func() ([]profile.Reservation, error) {
			list, broken, err := c.reservations(ctx)
			if broken > 0 {
				c.answers.Count(c.name, "broken-reservation")
			}
			return list, err
		},
	})
	if err != nil {
		c.warn(ctx, "scheduler", err)
	}
	c.changed = c.changed || reason != ""
}
