// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/koord-rt/koord-rt/api/protocol"
)

const schedulerUser = "system:serviceaccount:koordinator-system:koord-scheduler"

func TestValidate(t *testing.T) {
	t.Parallel()
	pod := func(metadata, spec string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: team, " + metadata + "}, spec: {" + spec + "}}"
	}
	const one = `containers: [{name: c, resources: {requests: {cpu: "1"}}}]`
	const half = `containers: [{name: c, resources: {requests: {cpu: 1500m}}}]`
	placed := `annotations: {` + protocol.AnnotationResourceStatus + `: '{"cpuset":"0-3"}'}`
	for name, c := range map[string]struct {
		now, old, subresource, user, limits string
		want                                string // a part of the refusal, "" for allowed
	}{
		"a plain pod":                      {now: pod("", one)},
		"BE and prod":                      {now: pod("labels: {koordinator.sh/qosClass: BE}", "priority: 9000, "+one), want: "BE cannot be combined"},
		"a user's CPUs":                    {now: pod(placed, one), want: "only the scheduler may"},
		"the scheduler's pod":              {now: pod(placed, one), user: schedulerUser},
		"a user places a running pod":      {now: pod(placed, one), old: pod("", one), want: "only the scheduler may"},
		"the scheduler places it":          {now: pod(placed, one), old: pod("", one), user: schedulerUser},
		"a user places it by its status":   {now: pod(placed, one), old: pod("", one), subresource: "status", want: "only the scheduler may"},
		"the scheduler, by its status":     {now: pod(placed, one), old: pod("", one), subresource: "status", user: schedulerUser},
		"QoS class changed by its status":  {now: pod("labels: {koordinator.sh/qosClass: BE}", one), old: pod("labels: {koordinator.sh/qosClass: LS}", one), subresource: "status", want: "cannot be changed"},
		"a wrong pod's status":             {now: pod("labels: {koordinator.sh/qosClass: BE, a: b}", "priority: 9000, "+one), old: pod("labels: {koordinator.sh/qosClass: BE}", "priority: 9000, "+one), subresource: "status"},
		"an old pod that is wrong":         {now: pod("labels: {koordinator.sh/qosClass: BE, a: b}", "priority: 9000, "+one), old: pod("labels: {koordinator.sh/qosClass: BE}", "priority: 9000, "+one)},
		"QoS class changed":                {now: pod("labels: {koordinator.sh/qosClass: BE}", one), old: pod("labels: {koordinator.sh/qosClass: LS}", one), want: "cannot be changed"},
		"OOM immunity":                     {now: pod(`annotations: {koordinator.sh/oom-score-adj: "-1000"}`, one), want: "at least 0"},
		"OOM immunity where it is allowed": {now: pod(`annotations: {koordinator.sh/oom-score-adj: "-1000"}`, one), limits: "oom-score-adj"},
		"a knob where none is allowed":     {now: pod(`annotations: {koordinator.sh/cpuBurst: "{}"}`, one), limits: "none", want: "namespace team"},
		"limits that mean nothing":         {now: pod(`annotations: {koordinator.sh/cpuBurst: "{}"}`, one), limits: "everything", want: "not allowed"},
		"a made-up limit":                  {now: pod(`annotations: {node.koordinator.sh/extended-resource-spec: '{"containers":{"c":{"limits":{"kubernetes.io/batch-cpu":"64000"}}}}'}`, one), want: "differs from the pod's requests"},
		"resized to a half":                {now: pod("labels: {koordinator.sh/qosClass: LSR}", "priority: 9000, "+half), old: pod("labels: {koordinator.sh/qosClass: LSR}", "priority: 9000, "+one), subresource: "resize", want: "whole CPUs"},
		"LS resized to a half":             {now: pod("labels: {koordinator.sh/qosClass: LS}", half), old: pod("labels: {koordinator.sh/qosClass: LS}", one), subresource: "resize"},
		"an ephemeral container":           {now: pod("labels: {koordinator.sh/qosClass: BE}", one+", ephemeralContainers: [{name: e}]"), old: pod("labels: {koordinator.sh/qosClass: BE}", one), subresource: "ephemeralcontainers"},
		"a mirror of a static pod":         {now: pod("labels: {koordinator.sh/qosClass: BE}, annotations: {kubernetes.io/config.mirror: x}", one)},
		"a mirror with a user's CPUs":      {now: pod(strings.Replace(placed, "{", "{kubernetes.io/config.mirror: x, ", 1), one), want: "only the scheduler may"},
		"opted out, but no CPUs":           {now: pod(`labels: {koord-rt.dev/opt-out: "true"}, `+placed, one), want: "only the scheduler may"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := namespace(nil, nil)
			if c.limits != "" {
				ns.Annotations = map[string]string{protocol.AnnotationPodLimits: c.limits}
			}
			w := newWorld(t, Options{Schedulers: []string{schedulerUser}}, ns)
			req := creation(document(t, c.now))
			req.SubResource = c.subresource
			if c.old != "" {
				req.Operation, req.OldObject = admissionv1.Update, runtime.RawExtension{Raw: document(t, c.old)}
			}
			if c.user != "" {
				req.UserInfo.Username = c.user
			}
			resp := w.validator.Handle(w.ctx, req)
			if resp.Allowed != (c.want == "") || !strings.Contains(resp.Result.Message, c.want) {
				t.Errorf("allowed %v, %q, want %q", resp.Allowed, resp.Result.Message, c.want)
			}
		})
	}
}
