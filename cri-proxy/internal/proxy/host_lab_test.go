// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package proxy_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// TestDisturbedHost: a decision that is late or panics leaves a real containerd the request as it came. The container is the one that
// the same request makes without a proxy; a sound decision makes another one.
func TestDisturbedHost(t *testing.T) {
	h, err := host.Start(t.Context(), host.Options{DisableNRI: true})
	must(t, err)
	t.Cleanup(func() { must(t, h.Close()) })
	r := newRigAt(t, h.Socket, node.CgroupV2, nil, func(c *config.Proxy) {
		c.Host.KubepodsRoot = "/" + h.Cgroup
	})
	r.engine.SetDeadline(time.Minute) // only who is held until then is late
	r.plugin.Store(true)              // which would set what no request carries
	made := func(c runtimeapi.RuntimeServiceClient, name string) (spec ociSpec, mark string) {
		t.Helper()
		pod := podOf(name, "BE", map[string]string{protocol.AnnotationRequired: "cpu-identity", "koordinator.sh/oom-score-adj": "900"})
		pod.Linux.CgroupParent = "/" + h.Cgroup + "/pod" + name
		pod.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}
		sandbox, err := c.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: pod})
		must(t, err)
		request := createOf(sandbox.PodSandboxId, pod)
		request.Config.Image, request.Config.Command = &runtimeapi.ImageSpec{Image: parts.ImageRef}, []string{"sleep", "1000"}
		reply, err := c.CreateContainer(t.Context(), request)
		must(t, err)
		st, info, err := h.CRI().ContainerStatus(t.Context(), reply.ContainerId)
		must(t, err)
		must(t, json.Unmarshal(info.RuntimeSpec, &spec))
		return spec, st.Annotations[protocol.AnnotationApplied]
	}
	want, _ := made(h.CRI().Runtime, "direct")
	if sound, mark := made(r, "sound"); mark == "" || cmp.Equal(want, sound) {
		t.Fatalf("a sound decision changes nothing: mark %q, %+v", mark, sound)
	}
	late := make(chan struct{})
	for reason, disturb := range map[string]func(){"deadline": func() { <-late }, "panic": func() { panic("test") }} {
		before := r.counted(t, "koord_rt_cri_fail_open_total", reason)
		if reason == "deadline" {
			r.engine.SetDeadline(1900 * time.Millisecond)
		}
		r.inDecision.Store(&disturb)
		got, mark := made(r, reason)
		if d := cmp.Diff(want, got); d != "" || mark != "" {
			t.Errorf("%s: mark %q, the container (-direct +through the proxy):\n%s", reason, mark, d)
		}
		if n := r.counted(t, "koord_rt_cri_fail_open_total", reason) - before; n < 1 {
			t.Errorf("%s: %v requests are counted as gone on", reason, n)
		}
		says := map[string]string{"deadline": "late: the request went on as it came", "panic": "panicked: the request went on as it came"}[reason]
		eventually(t, "a record of "+reason, func() bool { return r.book.problem(says) })
		r.inDecision.Store(nil)
		r.engine.SetDeadline(time.Minute)
	}
	close(late)
}

// ociSpec is what a decision could change of a container's specification.
type ociSpec struct {
	Process struct {
		OOMScoreAdj int      `json:"oomScoreAdj"`
		Env         []string `json:"env"`
	} `json:"process"`
	Linux struct {
		Resources json.RawMessage `json:"resources"`
	} `json:"linux"`
}
