// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

const admitPods = "/api/v1/namespaces/admit/pods/"

// ctxAfter is a context for what is done after a test, whose own has ended by then.
func ctxAfter(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }

// store makes a pod that lasts; once more where the API server went on without a webhook, for no case can tell afterwards what it has missed.
func (a *admitted) store(t *testing.T, namespace, text string) cluster.Object {
	t.Helper()
	pod, err := cluster.ParseObject([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	all := "/api/v1/namespaces/" + namespace + "/pods"
	for again := lab.MostExcused; ; again-- {
		passed := a.passedOver(t)
		got, err := a.c.Admin().Create(t.Context(), all, pod)
		if err != nil {
			t.Fatal(err)
		}
		if again == 0 || a.passedOver(t) == passed {
			return got
		}
		t.Logf("pod %s again, since the API server went on without a webhook", got.Str("metadata", "name"))
		if err := a.c.Admin().Delete(t.Context(), all+"/"+got.Str("metadata", "name"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// stored: what may change on a pod that is there, by an update, a resize and an ephemeral container.
func (a *admitted) stored(t *testing.T, scheduler *cluster.Client) {
	t.Helper()
	const own = "{name: main, image: x, resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: 500m, memory: 1Gi}}}"
	a.store(t, "admit", "metadata: {name: worker, labels: {case: be}}\nspec: {containers: ["+own+"]}")
	a.store(t, "admit", "metadata: {name: pinned, labels: {koordinator.sh/qosClass: LSR}}\n"+
		"spec: {priorityClassName: koord-prod, containers: [{name: main, image: x, resources: {requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}}]}")
	a.store(t, "admit", "metadata: {name: kept, labels: {case: keep, quota.scheduling.koordinator.sh/name: child}}\nspec: {containers: ["+own+"]}")
	a.store(t, "limited", "metadata: {name: plain}\nspec: {containers: [{name: main, image: x}]}")
	a.changes(t, scheduler)
	a.resizes(t)
	a.looks(t)
}

// changes: updates of stored pods. All but the scheduler's are dry runs.
func (a *admitted) changes(t *testing.T, scheduler *cluster.Client) {
	t.Helper()
	const others, anew = "only the scheduler may set, change or remove it", ": delete the pod and create it anew"
	const worker, plain = admitPods + "worker", "/api/v1/namespaces/limited/pods/plain"
	admin := a.c.Admin()
	for _, c := range []struct {
		name, path string
		by         *cluster.Client
		patch      string // of metadata
		want       string
		refused    []string
	}{
		{"another QoS class", worker, admin, "labels: {koordinator.sh/qosClass: LS}", "", []string{`label koordinator.sh/qosClass: cannot be changed from "BE" to "LS"` + anew, "vpod-update"}},
		{"no QoS class", worker, admin, "labels: {koordinator.sh/qosClass: null}", "", []string{"label koordinator.sh/qosClass: cannot be changed from"}},
		{"another rank", worker, admin, `labels: {koordinator.sh/priority: "5200"}`, "", []string{`label koordinator.sh/priority: cannot be changed from "5100" to "5200"` + anew}},
		{"no victim", worker, admin, `labels: {quota.scheduling.koordinator.sh/preemptible: "false"}`, "", []string{"preemptible: cannot be changed"}},
		{"other amounts for the node", worker, admin, "annotations: {node.koordinator.sh/extended-resource-spec: '{}'}", "", []string{"follows the pod's requests and cannot be changed"}},
		{"another priority class", worker, admin, `labels: {koordinator.sh/priority-class: koord-prod}`, "", []string{`priority class: cannot be changed from "koord-batch"`}},
		{"a label of nobody's", worker, admin, "labels: {a: b}", "{labels: {a: b}}", nil},
		{"the scheduler's word from another", worker, admin, "annotations: {scheduling.koordinator.sh/device-allocated: '{}'}", "", []string{others}},
		{"the scheduler's word", worker, scheduler, "annotations: {scheduling.koordinator.sh/device-allocated: '{}'}", "{annotations: {scheduling.koordinator.sh/device-allocated: '{}'}}", nil},
		{"a word of it changed", worker, admin, `annotations: {scheduling.koordinator.sh/device-allocated: '{"gpu":[]}'}`, "", []string{others}},
		{"a word of it taken away", worker, admin, "annotations: {scheduling.koordinator.sh/device-allocated: null}", "", []string{others}},
		{"something else beside it", worker, admin, "annotations: {a: b}", "{annotations: {a: b, scheduling.koordinator.sh/device-allocated: '{}'}}", nil},
		// A write of the status keeps labels and annotations.
		{"a word of it by the status", worker + "/status", admin, `annotations: {scheduling.koordinator.sh/resource-status: '{"cpuset":"0-3"}'}`, "", []string{others, "vpod-update"}},
		{"a word of it taken away by the status", worker + "/status", admin, "annotations: {scheduling.koordinator.sh/device-allocated: null}", "", []string{others}},
		{"another QoS class by the status", worker + "/status", admin, "labels: {koordinator.sh/qosClass: LS}", "", []string{"label koordinator.sh/qosClass: cannot be changed from"}},
		{"a label of nobody's by the status", worker + "/status", admin, "labels: {a: b}", "{labels: {a: b}}", nil},
		{"a knob that the namespace does not name", plain, admin, "annotations: {koordinator.sh/memoryQOS: '{}'}", "", []string{"memoryQOS is not allowed here"}},
		{"a knob that it names", plain, admin, "annotations: {koordinator.sh/cpuBurst: '{}'}", "{annotations: {koordinator.sh/cpuBurst: '{}'}}", nil},
	} {
		path := c.path
		if c.by == admin {
			path += "?dryRun=All"
		}
		patch, err := cluster.ParseObject([]byte("metadata: {" + c.patch + "}"))
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if c.want != "" {
			want = "metadata: " + c.want
		}
		err = a.answered(t, func() error {
			got, err := c.by.Patch(t.Context(), path, cluster.MergePatch, patch)
			return became(got, err, want, c.refused)
		})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// resizes: a pod of whole CPUs keeps whole ones, and a batch pod that keeps its own CPUs grows no further than its quota, that of [admitted.quotas]. That other batch pods
// get neither batch nor other CPUs is the API server's own rule, and judged by its words: no webhook is asked then, and ours has no such rule. What is refused is a dry
// run, since it would be stored where the API server goes on without the webhook; what passes is none.
func (a *admitted) resizes(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		name, pod, amounts string
		refused            []string
	}{
		{"a part of a CPU", "pinned", "{cpu: 2500m}", []string{"2500m in all: a pod of class LSR must ask for whole CPUs", "vpod-resize", "denied the request"}},
		{"whole CPUs", "pinned", "{cpu: 3}", nil},
		{"a batch pod above its quota", "kept", "{cpu: 60}", []string{
			"60 in all, above the 50 of spec.max of quota batch/child: the pod can never grow so far", "vpod-resize", "denied the request",
		}},
		{"a batch pod within its quota", "kept", "{cpu: 600m}", nil},
		{"more batch CPU", "worker", "{kubernetes.io/batch-cpu: 900}", []string{"422 Invalid", "only cpu and memory resources are mutable"}},
		{"CPUs of its own for a batch pod", "worker", "{cpu: 1}", []string{"422 Invalid", "Pod QOS Class may not change as a result of resizing"}},
	} {
		patch, err := cluster.ParseObject([]byte("metadata: {labels: {koordinator.sh/qosClass: LS}, annotations: {scheduling.koordinator.sh/resource-status: '{}'}}\n" +
			"spec: {containers: [{name: main, resources: {requests: " + c.amounts + ", limits: " + c.amounts + "}}]}"))
		if err != nil {
			t.Fatal(err)
		}
		path := admitPods + c.pod + "/resize"
		if len(c.refused) > 0 {
			path += "?dryRun=All"
		}
		err = a.answered(t, func() error {
			_, err := a.c.Admin().Patch(t.Context(), path, cluster.StrategicPatch, patch)
			return became(nil, err, "", c.refused)
		})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// What else stood in the requests was not stored.
	got, err := a.c.Admin().Get(t.Context(), admitPods+"pinned")
	if err := became(got, err, `metadata: {labels: {koordinator.sh/qosClass: LSR}, annotations: {scheduling.koordinator.sh/resource-status: null}}
spec: {containers: [{resources: {requests: {cpu: "3", memory: 1Gi}, limits: {cpu: "3", memory: 1Gi}}}]}`, nil); err != nil {
		t.Errorf("after the resizes: %v", err)
	}
}

// looks: an ephemeral container comes to a batch pod that runs, asks for nothing and changes nothing else. All of it are the API server's own rules, on which the manifest
// counts: no webhook of ours is asked (TestWhoIsCalled of cluster/webhook), so one that asks for CPUs is judged by the API server's words.
func (a *admitted) looks(t *testing.T) {
	t.Helper()
	const path = admitPods + "worker"
	was, err := a.c.Admin().Get(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	attach := func(container string) error {
		patch, err := cluster.ParseObject([]byte("metadata: {annotations: {scheduling.koordinator.sh/resource-status: '{}'}}\nspec: {ephemeralContainers: [" + container + "]}"))
		if err != nil {
			return err
		}
		_, err = a.c.Admin().Patch(t.Context(), path+"/ephemeralcontainers", cluster.StrategicPatch, patch)
		return err
	}
	const asks = "{name: asks, image: x, resources: {requests: {kubernetes.io/batch-cpu: 500}, limits: {kubernetes.io/batch-cpu: 500}}}"
	if err := became(nil, attach(asks), "", []string{"422 Invalid", "spec.ephemeralContainers[0].resources: Forbidden: cannot be set for an Ephemeral Container"}); err != nil {
		t.Errorf("an ephemeral container that asks for CPUs: %v", err)
	}
	if err := attach("{name: look, image: x}"); err != nil {
		t.Errorf("an ephemeral container: %v", err)
	}
	got, err := a.c.Admin().Get(t.Context(), path)
	if err := became(got, err, "metadata: {annotations: {scheduling.koordinator.sh/resource-status: null}}\nspec: {ephemeralContainers: [{name: look, resources: {}}]}", nil); err != nil {
		t.Errorf("after the ephemeral container: %v", err)
	}
	if is, want := got.Compact("spec", "containers"), was.Compact("spec", "containers"); is != want {
		t.Errorf("containers %s, want %s", is, want)
	}
	amounts := []any{"metadata", "annotations", protocol.AnnotationExtendedResource}
	if is, want := got.Compact(amounts...), was.Compact(amounts...); is != want || want == "null" {
		t.Errorf("amounts for the node %s, want %s", is, want)
	}
}

// ourScheduler: a koord-manager that is told of a scheduler, and of the admission alone, gives it the pods that need it. It is called beside the
// other one, for pods of two namespaces, by webhooks that this test makes of the manifest's.
func (a *admitted) ourScheduler(t *testing.T) {
	ctx := t.Context()
	at := freeAddresses(t, 3)
	flags, err := a.c.ManagerFlags(at[0], at[1], at[2])
	if err != nil {
		t.Fatal(err)
	}
	startProgram(t, filepath.Join(a.dir, "manager-scheduler.log"), bin("koord-manager"),
		append(flags, "--roles=webhook", "--scheduler-name=koord-scheduler", "--feature-gates=ValidatePodDeviceResource=true", "--v=4")...)
	a.user(t, `
apiVersion: v1
kind: Namespace
metadata: {name: ours, labels: {ours: "true"}}
---
apiVersion: v1
kind: Namespace
metadata: {name: counted, labels: {ours: "true"}}
`)
	for _, name := range []string{"ours", "counted"} {
		if err := a.c.Namespace(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	a.user(t, `
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: counted, namespace: counted}
spec: {min: {cpu: 1}, max: {cpu: 2}}
---
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata: {name: held}
spec: {ttl: 10m, owners: [{labelSelector: {matchLabels: {app: held}}}], template: {spec: {containers: [{resources: {requests: {cpu: 1}}}]}}}
`)
	a.also(t, "mutating", "mpod-create.koordinator.sh", at[2])
	a.also(t, "validating", "vpod-create.koordinator.sh", at[2])
	given := func(why string) string {
		return "metadata: {annotations: {koord-rt.dev/scheduler-reason: " + why + "}}\nspec: {schedulerName: koord-scheduler}"
	}
	kept := func(name string) string {
		return "metadata: {annotations: {koord-rt.dev/scheduler-reason: null}}\nspec: {schedulerName: " + name + "}"
	}
	const batch = "priorityClassName: koord-batch, containers: [{name: main, image: x}]"
	plain := podCase{name: "nothing of it", in: "ours", meta: "{labels: {a: b}}", want: kept("default-scheduler")}
	all := []podCase{
		{name: "a quota in the namespace", in: "counted", meta: "{labels: {a: b}}", want: given("quota in the namespace")},
		{name: "a reservation", in: "ours", meta: "{labels: {app: held}}", want: given("reservation held")},
		{name: "a priority class", in: "ours", meta: "{labels: {a: b}}", spec: "{" + batch + "}", want: given("priority class koord-batch")},
		{name: "a label", in: "ours", meta: "{labels: {koordinator.sh/qosClass: LS}}", want: given("label koordinator.sh/qosClass")},
		{name: "a device", in: "ours", meta: "{labels: {a: b}}", spec: gpuSpec("50"), want: given("device koordinator.sh/gpu-core")},
		plain,
		// What brings them to our scheduler holds them to that quota at once.
		{name: "all of its quota", in: "counted", meta: "{labels: {a: b}}", spec: "{containers: [" + asks("cpu: 2") + "]}", want: given("quota in the namespace")},
		{
			name: "more than its quota", in: "counted", meta: "{labels: {a: b}}", spec: "{containers: [" + asks("cpu: 3") + "]}",
			refused: []string{"3 in all, above the 2 of spec.max of quota counted/counted: the pod could never run"},
		},
		{name: "keep-scheduler", in: "ours", meta: "{labels: {koord-rt.dev/keep-scheduler: \"true\"}}", spec: "{" + batch + "}", want: kept("default-scheduler")},
		{name: "a pod that opts out", in: "ours", meta: "{labels: {koord-rt.dev/opt-out: \"true\"}}", spec: "{" + batch + "}", want: kept("default-scheduler")},
		{name: "another scheduler", in: "ours", meta: "{labels: {a: b}}", spec: "{schedulerName: other, " + batch + "}", want: kept("other")},
		{name: "a namespace that it is not called for", meta: "{labels: {a: b}}", spec: "{" + batch + "}", want: kept("default-scheduler")},
		{
			name: "devices that nobody can have", in: "ours", meta: "{labels: {a: b}}", spec: gpuSpec("150"),
			refused: []string{"container main: koordinator.sh/gpu-core is 150 of 1 GPU: want at most 100 of each"},
		},
	}
	for i := range 2 { // both are in its cache soon after they were made
		passes(t, all[i].name, func() error { return a.admit(t, &all[i]) })
	}
	a.admits(t, all)
	a.highPriority(t)
	a.untouched(t, "ours")
	// It reads what is there from its cache: the API server is not asked at each pod.
	lists := func() int {
		return len(a.audit.read(t, func(c *call) bool { return c.what() == "list reservations" && c.User.Name == managerUser }))
	}
	before := lists()
	for range 3 {
		if err := a.admit(t, &plain); err != nil { // it is asked whether any Reservation is for the pod
			t.Error(err)
		}
	}
	if n := lists() - before; n > 0 {
		t.Errorf("Reservations were listed %d times for 3 pods", n)
	}
}

// also has the API server call an address too by one of the webhooks, for namespaces of this test.
func (a *admitted) also(t *testing.T, kind, name, address string) {
	t.Helper()
	const group = "/apis/admissionregistration.k8s.io/v1/"
	o, err := a.c.Admin().Get(t.Context(), group+kind+"webhookconfigurations/koordinator-"+kind+"-webhook-configuration")
	if err != nil {
		t.Fatal(err)
	}
	list, _ := o["webhooks"].([]any)
	for i := range list {
		if o.Str("webhooks", i, "name") != name {
			continue
		}
		hook, _ := list[i].(map[string]any)
		config, _ := hook["clientConfig"].(map[string]any)
		config["url"] = "https://" + address + map[string]string{"mutating": "/mutate-pod", "validating": "/validate-pod"}[kind]
		hook["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{"ours": "true"}}
		path := group + kind + "webhookconfigurations"
		if _, err := a.c.Admin().Create(t.Context(), path, cluster.Object{"metadata": map[string]any{"name": "ours"}, "webhooks": []any{hook}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(ctxAfter(t), soon)
			defer cancel()
			if err := a.c.Admin().Delete(ctx, path+"/ours", -1); err != nil {
				t.Error(err)
			}
		})
		return
	}
	t.Fatalf("there is no webhook %s: %s", name, o.Compact("webhooks"))
}
