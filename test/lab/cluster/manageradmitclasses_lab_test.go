// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// highPriority makes the documents' PriorityClass, which lies above all of Koordinator's, for as long as a test: [admitted.documents] makes it anew.
func (a *admitted) highPriority(t *testing.T) {
	t.Helper()
	a.user(t, read(t, "testdata/manifests/m01-priorityclass-high.yaml"))
	t.Cleanup(func() {
		if err := a.c.Admin().Delete(ctxAfter(t), "/apis/scheduling.k8s.io/v1/priorityclasses/high-priority", -1); err != nil {
			t.Error(err)
		}
	})
	c := podCase{meta: "{labels: {a: b}}", spec: "{priorityClassName: high-priority, containers: [{name: main, image: x}]}", want: "spec: {priority: 100000}"}
	passes(t, "the documents' PriorityClass", func() error { return a.admit(t, &c) }) // which the API server's own cache has a moment later
}

// combinations are all of QoS class and priority class: BE is neither production nor of no class, LSR is production alone, and all else is taken.
// A priority above all of Koordinator's is of no class.
func combinations() (out []podCase) {
	const none, high = "no Koordinator priority class", "high-priority"
	forbidden := map[string][]string{"BE": {none, high, "koord-prod"}, "LSR": {none, high, "koord-mid", "koord-batch", "koord-free"}}
	for _, qos := range []string{"LSE", "LSR", "LS", "BE", "SYSTEM"} {
		for _, class := range []string{none, high, "koord-prod", "koord-mid", "koord-batch", "koord-free"} {
			c := podCase{name: qos + " of " + class, meta: "{labels: {koordinator.sh/qosClass: " + qos + "}}", want: "metadata: {labels: {koordinator.sh/qosClass: " + qos + "}}"}
			const pod = "containers: [{name: main, image: x, resources: {requests: {cpu: 2}}}]}"
			said := none
			if c.spec = "{" + pod; class != none {
				c.spec = "{priorityClassName: " + class + ", " + pod
			}
			if class != none && class != high {
				said = "priority class " + class
			}
			if slices.Contains(forbidden[qos], class) {
				c.refused = []string{"label koordinator.sh/qosClass: " + qos + " cannot be combined with " + said + ": set priorityClassName to ", "denied the request"}
			}
			out = append(out, c)
		}
	}
	return out
}

// untouched: the documents' pods that say nothing of Koordinator's become in a namespace what they become in one that opts out of all changes.
func (a *admitted) untouched(t *testing.T, namespace string) {
	t.Helper()
	for _, file := range []string{"m02-pod-high-priority", "m03-pod-zone"} {
		pod, err := cluster.ParseObject([]byte(read(t, "testdata/manifests/"+file+".yaml")))
		if err != nil {
			t.Fatal(err)
		}
		made := func(in string) any {
			got, err := a.c.Admin().Create(t.Context(), "/api/v1/namespaces/"+in+"/pods?dryRun=All&fieldValidation=Strict", pod)
			if err != nil {
				t.Fatalf("%s in %s: %v", file, in, err)
			}
			return withoutItsOwn(t, got)
		}
		if diff := cmp.Diff(made("left"), made(namespace)); diff != "" {
			t.Errorf("%s in %s is changed: %s", file, namespace, diff)
		}
	}
}

var tokenVolume = regexp.MustCompile("kube-api-access-[a-z0-9]+")

// withoutItsOwn is a pod without what the API server gives to no two pods alike.
func withoutItsOwn(t *testing.T, pod cluster.Object) (out any) {
	t.Helper()
	meta, _ := pod.At("metadata").(map[string]any)
	for _, field := range []string{"namespace", "uid", "creationTimestamp", "managedFields"} {
		delete(meta, field)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(tokenVolume.ReplaceAll(text, []byte("kube-api-access")), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
