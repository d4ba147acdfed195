// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// gatesTold are the feature gates that change what webhooks refuse or write and that no other test of this cluster has: MultiQuotaTree and
// ReservationMutatingWebhook are those of all its replicas, ValidatePodDeviceResource is in ourScheduler.
var gatesTold = []string{
	"ColocationProfileSkipMutatingResources", "ColocationProfileSkipValidatingPriority", "DisableDefaultQuota", "DisableDeviceResourceSpec",
	"DisableExtendedResourceSpec", "ElasticQuotaEnableUpdateResourceKey", "ElasticQuotaIgnorePodOverhead", "SupportParentQuotaSubmitPod",
}

// gatedObjects are what the cases go by. The default quota cannot be deleted again, so it limits what nothing else asks for.
const gatedObjects = `
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: gated}
spec: {selector: {matchLabels: {app: gated}}, qosClass: BE, priorityClassName: koord-batch}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: heavy}
handler: heavy
overhead: {podFixed: {cpu: 1}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: ` + protocol.QuotaDefault + `, namespace: batch}
spec: {max: {lab.example/token: 1}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: keyed, namespace: batch, labels: {quota.scheduling.koordinator.sh/is-parent: "true"}}
spec: {min: {cpu: 10}, max: {cpu: 50, memory: 1Gi}}
`

// gates: what feature gates lift, and two flags that say who may do what, by a koord-manager that has them all: each request is refused by the
// one without them first. The quotas of [admitted.quotas] stand, and the pod worker of [admitted.stored].
func (a *admitted) gates(t *testing.T) {
	const ownScheduler = "system:serviceaccount:batch:own-scheduler"
	at := freeAddresses(t, 3)
	flags, err := a.c.ManagerFlags(at[0], at[1], at[2])
	if err != nil {
		t.Fatal(err)
	}
	a.user(t, gatedObjects)
	own, err := a.c.As(ownScheduler, "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	cases := a.lifted(own)
	for i := range cases {
		refused(t, cases[i].name+", without a gate", cases[i].try, cases[i].says...)
	}
	startProgram(t, filepath.Join(a.dir, "manager-gates.log"), bin("koord-manager"), append(flags, "--roles=webhook", "--v=4",
		"--pod-limits=oom-score-adj>=-500", "--scheduler-users="+ownScheduler, "--feature-gates="+strings.Join(gatesTold, "=true,")+"=true")...)
	a.front.only(&replica{hooks: at[2]})
	t.Cleanup(func() {
		a.front.only(a.replicas[0])
		if err := a.c.Admin().Delete(ctxAfter(t), profilePath+"/gated", -1); err != nil {
			t.Error(err)
		}
	})
	// What no gate lifts: it is asked, and knows the quotas.
	above := podCase{in: "batch", meta: "{labels: {quota.scheduling.koordinator.sh/name: child}}", spec: "{containers: [" + asks("cpu: 60") + "]}"}
	refused(t, "more than max, with all gates", func() error { return a.admit(t, &above) }, "60 in all, above the 50 of spec.max of quota batch/child")
	knob := podCase{meta: "{annotations: {koordinator.sh/memoryQOS: '{}'}}"}
	refused(t, "a knob that --pod-limits does not name", func() error { return a.admit(t, &knob) }, "memoryQOS is not allowed here")
	for i := range cases {
		if err := cases[i].try(); err != nil {
			t.Errorf("%s, with its gate: %v", cases[i].name, err)
		}
	}
	has := func(requests string) string { // the profile acts
		return "metadata: {annotations: {koord-rt.dev/profiles: gated, node.koordinator.sh/extended-resource-spec: null}}\n" +
			"spec: {priorityClassName: koord-batch, containers: [{resources: {requests: {" + requests + "}}}]}"
	}
	const meta = "{labels: {app: gated}}"
	stays := []podCase{
		{name: "requests stay", meta: meta, spec: "{containers: [" + asks("cpu: 1500m") + "]}", want: has("cpu: 1500m, kubernetes.io/batch-cpu: null")},
		{name: "no amounts for the node", meta: meta, spec: "{containers: [" + asks("kubernetes.io/batch-cpu: 1500") + "]}", want: has("kubernetes.io/batch-cpu: 1500")},
		{name: "devices stay", meta: meta, spec: gpuSpec("200"), want: has(`koordinator.sh/gpu: "200", koordinator.sh/gpu-core: null`)},
	}
	passes(t, stays[0].name, func() error { return a.admit(t, &stays[0]) }) // its cache has the profile then
	a.admits(t, stays)
}

// asks is a container that asks for some amounts and has them as limits.
func asks(amounts string) string {
	return "{name: main, image: x, resources: {requests: {" + amounts + "}, limits: {" + amounts + "}}}"
}

// liftedCase is a request and what its refusal says.
type liftedCase struct {
	name string
	try  func() error
	says []string
}

// lifted are requests that a gate, or a flag, lets pass.
func (a *admitted) lifted(scheduler *cluster.Client) []liftedCase {
	pod := func(c podCase) func() error { return func() error { return a.admit(a.outer, &c) } }
	object := func(text string) func() error {
		return func() error {
			_, err := (&objectCase{text: text}).ask(a.outer.Context(), scheduler)
			return err
		}
	}
	of := func(quota string) string { return "{labels: {quota.scheduling.koordinator.sh/name: " + quota + "}}" }
	return []liftedCase{
		{"another rank of a stored pod", func() error {
			rank := map[string]any{"metadata": map[string]any{"labels": map[string]any{protocol.LabelPriority: "5200"}}}
			_, err := a.c.Admin().Patch(a.outer.Context(), admitPods+"worker?dryRun=All", cluster.MergePatch, rank)
			return err
		}, []string{`label koordinator.sh/priority: cannot be changed from "5100" to "5200"`}},
		{"a child that limits less than its parent", func() error {
			return a.try(a.outer.Context(), quotaText("keyed-child", "keyed"))
		}, []string{"quota keyed limits memory, and its child keyed-child does not: add it to the child"}},
		{
			"a pod of a parent", pod(podCase{in: "batch", meta: of("company"), spec: "{containers: [" + asks("cpu: 1") + "]}"}),
			[]string{"quota batch/company is a parent"},
		},
		{
			"a pod that its overhead makes too large", pod(podCase{in: "batch", meta: of("child"), spec: "{runtimeClassName: heavy, containers: [" + asks("cpu: 50") + "]}"}),
			[]string{"51 in all, above the 50 of spec.max of quota batch/child"},
		},
		{
			"a pod of the default quota", pod(podCase{meta: "{labels: {a: b}}", spec: "{schedulerName: koord-scheduler, containers: [" + asks("lab.example/token: 2") + "]}"}),
			[]string{"2 in all, above the 1 of spec.max of quota batch/" + protocol.QuotaDefault},
		},
		{"another pods' victim", pod(podCase{meta: `{annotations: {koordinator.sh/oom-score-adj: "-1"}}`}), []string{"oom-score-adj -1, at least 0 is allowed here"}},
		{
			"the scheduler's word from a scheduler of one's own", pod(podCase{meta: `{annotations: {scheduling.koordinator.sh/resource-status: '{"cpuset":"0-3"}'}}`, by: scheduler}),
			[]string{"annotation scheduling.koordinator.sh/resource-status: only the scheduler may set, change or remove it"},
		},
		{
			"its word about a room", object(aReservation + "{" + ruledOwners + ", template: " + deviceTemplate + "}"),
			[]string{"annotation scheduling.koordinator.sh/device-allocated: only the scheduler may set or change it"},
		},
		{
			"its word about a job's room", object(aJob + "{" + ruledPod + ", reservationOptions: {template: {spec: {template: " + deviceTemplate + "}}}}"),
			[]string{"annotation scheduling.koordinator.sh/device-allocated: only the scheduler may set or change it"},
		},
		{
			"its word that a job may go on", object(strings.Replace(aJob, "{name: ruled}", "{name: ruled, annotations: "+passedArbitration+"}", 1) + "{" + ruledPod + "}"),
			[]string{"annotation descheduler.koordinator.sh/passed-arbitration: only the descheduler may set it"},
		},
	}
}
