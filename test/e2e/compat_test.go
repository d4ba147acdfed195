// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/parts"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// The older runtimes of the matrix have NRI 0.8: no scheduler field, no UpdatePodSandbox event, CDI dropped, or refused
// unless enabled.
// What the spec cannot carry there is written at StartContainer, so the same scenarios hold.

func TestCompatContainerd20(t *testing.T) {
	runScenarios(t, rigOptions{containerd: parts.Containerd20})
}

func TestCompatContainerd17(t *testing.T) {
	runScenarios(t, rigOptions{containerd: parts.Containerd17})
}

// TestGuestCompat20 and TestGuestCompat17 run scenarios on cgroup v2, where their NRI has to carry what v1 has files of ours for.

func TestGuestCompat20(t *testing.T) { runScenarios(t, rigOptions{containerd: parts.Containerd20}) }

func TestGuestCompat17(t *testing.T) { runScenarios(t, rigOptions{containerd: parts.Containerd17}) }

// TestCompatContainerd17CDI: with enable_cdi, which the lab's 1.7 has, CDI devices of an adjustment are applied there too, since 1.7.30;
// containerd does not tell, so koord-nri has to be told.
func TestCompatContainerd17CDI(t *testing.T) {
	r := newRig(t, rigOptions{containerd: parts.Containerd17CDI})
	r.extra = map[string]any{"cdi": "on"}
	lifecycleCDI(r)
}

// TestCompatContainerd20CDI: 2.0 drops CDI devices of an adjustment without a word, so with the name in the registry the container
// gets the node and the variable all the same, and features says why.
func TestCompatContainerd20CDI(t *testing.T) { dropsCDI(t, parts.Containerd20, "auto") }

// TestCompatContainerd17DropsCDI: so does 1.7 before 1.7.30, with enable_cdi too, and to say that it does not changes nothing.
func TestCompatContainerd17DropsCDI(t *testing.T) { dropsCDI(t, parts.Containerd17, "on") }

func dropsCDI(t *testing.T, containerd, told string) {
	r := newRig(t, rigOptions{containerd: containerd})
	r.extra = map[string]any{"cdi": told}
	registry(r, `{"cdiVersion":"0.6.0","kind":"nvidia.com/gpu","devices":[{"name":"GPU-lab-1","containerEdits":{"env":["LAB_GPU=one"]}}]}`)
	r.makeDevices([]scenario.Device{{Path: "/dev/nvidia1", Major: 195, Minor: 1}})
	r.up(standard, nil)
	p := lsPod("cdi-dropped")
	p.Annotations = map[string]string{protocol.AnnotationDeviceAllocated: `{"gpu":[{"minor":1,"id":"GPU-lab-1","resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory-ratio":"100"}}]}`}
	r.soon(2*time.Second, r.pod(p), []string{
		"main @env LAB_GPU=", "main @env NVIDIA_VISIBLE_DEVICES=GPU-lab-1", "main @device /dev/nvidia1=c 195:1", "main @access 195:1=allowed",
	})
	r.degraded("devices", "does not apply CDI devices from NRI")
}

// TestCompatContainerd16: containerd without NRI, so with the proxy alone. It has no CDI and no UpdatePodSandboxResources either.
func TestCompatContainerd16(t *testing.T) {
	t.Run("Scenarios", func(t *testing.T) { proxyScenarios(t, rigOptions{containerd: parts.Containerd16}) })
	t.Run("Lives", func(t *testing.T) {
		proxyLives(t, rigOptions{containerd: parts.Containerd16, nri: host.Options{DisableNRI: true}}, []proxyLife{
			{"Resize", proxyResizeUntold},
			{"Rebuilt", proxyRebuilt},
			{"RuntimeRestarts", proxyRuntimeRestarts},
		})
	})
}

// proxyResizeUntold: the kubelet writes a smaller quota to a pod whose burst is as large as the one it had, and nobody hears of it
// beforehand. The container's own update tells.
func proxyResizeUntold(p *viaProxy) {
	_, rest := cpus()
	p.upProxy(standard, onlyEvents()) // as lifecycleResize
	p.degraded("cpu-burst", "has no UpdatePodSandboxResources call")
	be, ls := p.pod(bePod("untold-be")), p.pod(lsPod("untold-ls"))
	p.soon(5*time.Second, ls, quotaWants(50000, 128<<20))
	p.resizes(ls)
	lsr := p.pod(lsrPod("untold-lsr"))
	p.soon(5*time.Second, lsr, wants("LSR", ""))
	p.soon(5*time.Second, be, wants("BE", rest))
	if m := p.mark(ls.Containers["main"]); m == nil || !strings.HasPrefix(m.By, "koord-runtime-proxy/") {
		p.t.Errorf("mark %+v", m)
	}
}

func TestCompatResize20(t *testing.T) { compatResizes(t, parts.Containerd20) }

func TestCompatResize17(t *testing.T) { compatResizes(t, parts.Containerd17) }

// compatResizes: NRI does not tell of a resize of the pod there, and features says so. Bursts are lowered all the same, with
// the container's update, which comes first.
func compatResizes(t *testing.T, containerd string) {
	r := newRig(t, rigOptions{containerd: containerd})
	for _, l := range []lifecycle{
		{"Resize", func(r *rig) {
			lifecycleResize(r)
			r.degraded("cpu-burst", "has no UpdatePodSandbox event: a pod's burst is lowered only with its containers' updates")
		}},
		{"ResizeExclusive", lifecycleResizeExclusive},
	} {
		t.Run(l.name, func(t *testing.T) {
			sub := r.sub(t)
			sub.freshRun()
			l.test(sub)
		})
	}
}

// degraded fails unless features calls a feature degraded and says why; a table's cell may be cut anywhere.
func (r *rig) degraded(feature, why string) {
	r.t.Helper()
	r.eventually(8*time.Second, func() error { // the status may be older than the runtime's word
		out, err := r.ctl("features")
		text := strings.Join(strings.Fields(out), " ")
		if err != nil || !strings.Contains(text, feature+" degraded ") || !strings.Contains(text, why) {
			return fmt.Errorf("features does not call %s degraded because the runtime %s (%v):\n%s", feature, why, err, out)
		}
		return nil
	})
}
