// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// make makes a pod of one container; meta, main and spec are YAML of its metadata, of its container's fields and of its other fields.
func (n *served) make(name, meta, main string, spec ...string) {
	n.t.Helper()
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", namespace: work, " + meta + "}\n" +
		"spec: {nodeName: " + n.k.Node + ", hostNetwork: true, dnsPolicy: Default, terminationGracePeriodSeconds: 1, containers: [{name: main, " +
		"image: " + parts.ImageRef + ", imagePullPolicy: Never, " + main + "}], " + strings.Join(spec, ", ") + "}\n"
	if _, err := n.c.Admin().Apply(n.t.Context(), "lab", false, []byte(text)); err != nil {
		n.t.Fatal(err)
	}
}

// batch makes a best-effort pod that asks for this much, and is limited to it; labels, main and spec are YAML.
func (n *served) batch(name, class, labels, each, main string, spec ...string) {
	n.t.Helper()
	n.make(name, `labels: {koordinator.sh/qosClass: BE, `+labels+`}, annotations: {node.koordinator.sh/extended-resource-spec: `+
		`'{"containers":{"main":{"requests":{`+each+`},"limits":{`+each+`}}}}'}`, main, append(spec, "priorityClassName: "+class)...)
}

// unannotated: a best-effort pod whose amounts nobody has written into an annotation, as koord-manager's admission does. koord-nri has them of
// koordlet, which has the pod of the kubelet, and which may come after the container's start.
func (n *served) unannotated() {
	n.t.Helper()
	const amounts = `{"kubernetes.io/batch-cpu":"4000","kubernetes.io/batch-memory":"1Gi"}`
	patch := []byte(`{"status":{"capacity":` + amounts + `,"allocatable":` + amounts + `}}`)
	if _, err := n.c.Admin().Patch(n.t.Context(), "/api/v1/nodes/"+n.k.Node+"/status", cluster.MergePatch, json.RawMessage(patch)); err != nil {
		n.t.Fatal(err)
	}
	const each = `{kubernetes.io/batch-cpu: "500", kubernetes.io/batch-memory: 64Mi}`
	n.make("plain", "labels: {koordinator.sh/qosClass: BE}", "resources: {requests: "+each+", limits: "+each+"}", "priorityClassName: batch-high")
	plain := n.ready("plain")
	begun := time.Now()
	n.have(plain, beHas...)
	n.tell("the amounts of a pod without an annotation were in force %s after it was ready", time.Since(begun).Round(time.Millisecond))
	if err := n.c.Admin().Delete(n.t.Context(), workPods+"plain", -1); err != nil {
		n.t.Fatal(err)
	}
	n.gone(plain)
}

// await polls an object.
func (n *served) await(path, what string, ok func(cluster.Object) bool) cluster.Object {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience(shortest))
	defer cancel()
	got, err := n.c.Admin().Wait(ctx, path, what, ok)
	if err != nil {
		n.t.Fatal(err)
	}
	return got
}

func (n *served) ready(name string) cluster.Object {
	n.t.Helper()
	return n.await(workPods+name, name+" ready", func(p cluster.Object) bool { return p.Condition("Ready") == "True" })
}

// podDir is the cgroup of a pod.
func (n *served) podDir(pod cluster.Object) string {
	class := map[string]string{"Burstable": "burstable", "BestEffort": "besteffort"}[pod.Str("status", "qosClass")]
	return filepath.Join(n.tree.Unified, n.k.CgroupRoot, "kubepods", class, "pod"+pod.Str("metadata", "uid"))
}

// besteffort is the cgroup of all best-effort pods.
func (n *served) besteffort() string { return filepath.Join(n.kubepods(""), "besteffort") }

// dir is the cgroup of its container.
func (n *served) dir(pod cluster.Object) string {
	return filepath.Join(n.podDir(pod), containerOf(pod))
}

func containerOf(pod cluster.Object) string {
	_, id, _ := strings.Cut(pod.Str("status", "containerStatuses", 0, "containerID"), "://")
	return id
}

// have waits until the control files of a container, or with "pod " before the name of its pod or "above " of what that stands in,
// have these values: "FILE=VALUE".
func (n *served) have(pod cluster.Object, wants ...string) {
	n.t.Helper()
	n.eventually(shortest, func() error { return n.lacks(pod, wants...) })
}

// lacks says which of the values that have waits for are not there now.
func (n *served) lacks(pod cluster.Object, wants ...string) error {
	var errs []error
	for _, w := range wants {
		file, value, _ := strings.Cut(w, "=")
		dir := n.dir(pod)
		if name, ok := strings.CutPrefix(file, "pod "); ok {
			dir, file = n.podDir(pod), name
		} else if name, ok := strings.CutPrefix(file, "above "); ok {
			dir, file = filepath.Dir(n.podDir(pod)), name
		}
		if got, err := cgroups.Read(dir, file); err != nil || got != value {
			errs = append(errs, fmt.Errorf("%s of %s: want %q, the kernel has %q, %v", w, pod.Str("metadata", "name"), value, got, err))
		}
	}
	return errors.Join(errs...)
}

// disruptions tells the pods that were to go since it was called.
func (n *served) disruptions() (seen func() []cluster.Disruption) {
	n.t.Helper()
	seen, err := n.c.Admin().Disruptions(n.t.Context(), strings.TrimSuffix(workPods, "/"))
	if err != nil {
		n.t.Fatal(err)
	}
	return seen
}

// evictedAlone waits until the API server has accepted that a pod must go, this very pod, and returns when that was seen.
func (n *served) evictedAlone(pod cluster.Object, seen func() []cluster.Disruption) (at time.Time) {
	n.t.Helper()
	want := []cluster.Disruption{{Name: pod.Str("metadata", "name"), UID: pod.Str("metadata", "uid"), Reason: cluster.Evicted}}
	n.eventually(30*time.Second, func() error {
		if got := seen(); !slices.Equal(got, want) {
			return fmt.Errorf("the API server has accepted %+v, want %+v", got, want)
		}
		return nil
	})
	return time.Now()
}

// gone waits until the API server has a pod no more; nor has the kernel then.
func (n *served) gone(pod cluster.Object) {
	n.t.Helper()
	n.await(workPods+pod.Str("metadata", "name"), "end of "+pod.Str("metadata", "name"), func(p cluster.Object) bool { return p == nil })
	if _, err := os.Stat(n.podDir(pod)); !errors.Is(err, fs.ErrNotExist) {
		n.t.Errorf("%s is gone, and its cgroup is there: %v", pod.Str("metadata", "name"), err)
	}
}

// untouched: these pods run as they did, nobody has asked them to go, and the kernel has killed nothing in them.
func (n *served) untouched(pods ...cluster.Object) {
	n.t.Helper()
	for _, was := range pods {
		name := was.Str("metadata", "name")
		p, err := n.c.Admin().Get(n.t.Context(), workPods+name)
		if err != nil {
			n.t.Fatal(err)
		}
		if p.Str("metadata", "uid") != was.Str("metadata", "uid") || containerOf(p) != containerOf(was) || p.Condition("Ready") != "True" ||
			p.Str("metadata", "deletionTimestamp") != "" || p.Condition("DisruptionTarget") != "" {
			n.t.Errorf("%s is not as it was: %s %s", name, p.Compact("metadata"), p.Compact("status"))
		}
		if kills := event(n.file(n.dir(was), "memory.events"), "oom_kill"); kills != 0 {
			n.t.Errorf("the kernel has killed %d processes of %s", kills, name)
		}
	}
}
