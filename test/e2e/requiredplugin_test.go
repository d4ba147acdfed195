// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/host"
)

// TestHostLifecycleRequiredPlugin has koord-nri required by containerd's own configuration, with the words of docs/user/safety.md: while it is
// away no container is created but for who tolerates that, and when it is back everything goes on. This is between runtime and plugin, so
// the host shows it alone.
func TestHostLifecycleRequiredPlugin(t *testing.T) {
	page, err := os.ReadFile("../../docs/user/safety.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 1 || !strings.Contains(blocks[0][1], "required_plugins") {
		t.Fatalf("the page should have one piece of containerd's configuration: %q", blocks)
	}
	r := newRig(t, rigOptions{nri: host.Options{DropIns: map[string]string{"required.toml": "version = 3\n" + blocks[0][1]}}})
	ctx := t.Context()
	r.up(standard, nil)
	r.now(r.pod(bePod("needs-there")), wants("BE", ""))

	r.stop(syscall.SIGKILL)
	// A sandbox is not refused. With it the runtime finds that koord-nri has gone: a container that came first might still count it as asked.
	run, err := r.kube.RunPod(ctx, bePod("needs-away"))
	if err != nil {
		t.Fatal(err)
	}
	r.cleanPod(run)
	for range 2 { // the kubelet tries again
		_, err := r.kube.CreateContainer(ctx, run, "main")
		if err == nil || !strings.Contains(err.Error(), `required plugin "koord-rt" not present`) {
			t.Fatalf("a container's creation without the plugin that is required: %v", err)
		}
	}
	containers, err := r.host.CRI().Containers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range containers {
		if c.PodSandboxId == run.SandboxID {
			t.Error("the runtime has made the refused container")
		}
	}
	tolerant := bePod("needs-not")
	tolerant.Annotations["koord-rt.dev/tolerate-missing"] = "true"
	free := r.pod(tolerant)
	if r.differs(free, wants("BE", "")) == nil {
		t.Error("a pod has its values while koord-nri is away: what follows shows nothing")
	}

	r.again()
	if err := r.kube.StartContainer(ctx, run, "main"); err != nil {
		t.Fatalf("koord-nri is back: %v", err)
	}
	r.soon(5*time.Second, run, wants("BE", ""))
	r.soon(5*time.Second, free, wants("BE", ""))
}
