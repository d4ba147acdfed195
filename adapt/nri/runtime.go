// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nri

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/model/node"
)

// release is the beginning of a runtime's release line and what it brought. Rows are in order of version; the last row
// that is not newer than the runtime holds.
type release struct {
	major, minor, patch int
	nri                 string
	fields              node.Fields
	problems            []string
}

const (
	problemNoCDI7 = "CDI by NRI needs enable_cdi in containerd's configuration, which it does not tell: device nodes are used unless ours says cdi: on"
	problemNoCDI  = "CDI devices of an NRI adjustment are dropped by containerd 2.0, and by 1.7 before 1.7.30: device nodes are used instead"
	problemNoPID  = "CRI-O before 1.36 does not tell the container's process: knobs of processes are set later, by repair"
	problemSched  = "no scheduler field: SCHED_IDLE is set at start"
	problemStarts = "CRI-O starts a container whose start koord-nri refuses: fail-closed ends at its creation, unless the proxy is used instead"
)

// releases is read from the sources of each release: what is applied, not merely accepted.
func releases(runtime string) []release {
	base := node.Fields{Unified: true, OOMScoreAdj: true, RDTClass: true}
	cdi, pod, sched := base, base, base
	cdi.CDI = true
	pod.CDI, pod.UpdatePod = true, true
	sched.CDI, sched.UpdatePod, sched.Scheduler = true, true, true
	switch runtime {
	case "containerd":
		return []release{
			{1, 7, 27, "0.8", base, []string{problemNoCDI, problemSched}},
			{1, 7, 30, "0.8", base, []string{problemNoCDI7, problemSched}},
			{2, 0, 0, "0.8", base, []string{problemNoCDI, problemSched}},
			{2, 1, 0, "0.8", cdi, []string{problemSched}},
			{2, 2, 0, "0.10", pod, []string{problemSched}},
			{2, 2, 1, "0.11", sched, nil},
			{2, 3, 0, "0.12", sched, nil},
		}
	case "cri-o":
		return []release{
			{1, 32, 0, "0.9", base, []string{problemStarts, problemNoPID, problemSched}},
			{1, 34, 0, "0.10", pod, []string{problemStarts, problemNoPID, problemSched}},
			{1, 35, 0, "0.11", sched, []string{problemStarts, problemNoPID}},
			{1, 36, 0, "0.11", sched, []string{problemStarts}},
			{1, 37, 0, "0.12", sched, []string{problemStarts}},
		}
	}
	return nil
}

// Runtime says what a runtime really applies. name and version are those of the Configure request ("containerd",
// "v2.4.2"; "cri-o", "1.34.1"); nriVersion is the API version when the runtime tells it ("v0.12.3"), else "" or a
// placeholder, and is derived then. A runtime that is too old or unknown has no Fields and a Problem that begins with
// "unsupported".
func Runtime(name, version, nriVersion string) node.Runtime {
	r := node.Runtime{Name: name, Version: version}
	table := releases(strings.ToLower(name))
	v, ok := parseVersion(version)
	told, toldOK := parseVersion(nriVersion)
	toldOK = toldOK && told != [3]int{}
	if table == nil || !ok {
		return unknownRuntime(r, told, toldOK)
	}
	var hit *release
	for i := range table {
		if !older(v, [3]int{table[i].major, table[i].minor, table[i].patch}) {
			hit = &table[i]
		}
	}
	if hit == nil {
		first := table[0]
		r.Problems = []string{fmt.Sprintf("unsupported: %s %s is older than %d.%d.%d", name, version, first.major, first.minor, first.patch)}
		return r
	}
	r.NRI, r.Fields, r.Problems = hit.nri, hit.fields, append([]string(nil), hit.problems...)
	r.NoCDI = slices.Contains(hit.problems, problemNoCDI)
	if toldOK {
		r.NRI = fmt.Sprintf("%d.%d", told[0], told[1])
		r.Fields = limit(r.Fields, told)
	}
	return r
}

// unknownRuntime trusts the NRI version alone; without one nothing is known.
func unknownRuntime(r node.Runtime, told [3]int, ok bool) node.Runtime {
	if !ok || older(told, [3]int{0, 8, 0}) {
		r.Problems = []string{fmt.Sprintf("unsupported: runtime %q version %q is not known", r.Name, r.Version)}
		return r
	}
	r.NRI = fmt.Sprintf("%d.%d", told[0], told[1])
	r.Fields = limit(node.Fields{Unified: true, OOMScoreAdj: true, RDTClass: true, Scheduler: true, UpdatePod: true}, told)
	r.Problems = []string{fmt.Sprintf("runtime %q is not tested: what it applies is guessed from NRI %s", r.Name, r.NRI)}
	return r
}

// limit removes what an NRI version does not know.
func limit(f node.Fields, nri [3]int) node.Fields {
	if older(nri, [3]int{0, 7, 0}) {
		f.OOMScoreAdj, f.CDI = false, false
	}
	if older(nri, [3]int{0, 10, 0}) {
		f.UpdatePod = false
	}
	if older(nri, [3]int{0, 11, 0}) {
		f.Scheduler = false
	}
	return f
}

// Events is the subscription: an older runtime refuses a plugin that names an event it does not know ("invalid plugin
// events").
func Events(r *node.Runtime) api.EventMask {
	var m api.EventMask
	m.Set(
		api.Event_RUN_POD_SANDBOX, api.Event_STOP_POD_SANDBOX, api.Event_REMOVE_POD_SANDBOX,
		api.Event_CREATE_CONTAINER, api.Event_START_CONTAINER, api.Event_UPDATE_CONTAINER,
		api.Event_POST_UPDATE_CONTAINER, api.Event_STOP_CONTAINER, api.Event_REMOVE_CONTAINER,
	)
	if r.Fields.UpdatePod {
		m.Set(api.Event_UPDATE_POD_SANDBOX, api.Event_POST_UPDATE_POD_SANDBOX)
	}
	return m
}

// parseVersion reads "v1.7.30-rc.1+unknown" as {1, 7, 30}; missing parts are 0.
func parseVersion(s string) (v [3]int, ok bool) {
	s = strings.TrimPrefix(strings.TrimSpace(s), "v")
	if i := strings.IndexAny(s, "-+~ "); i >= 0 {
		s = s[:i]
	}
	if s == "" {
		return v, false
	}
	for i, part := range strings.SplitN(s, ".", 3) {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

func older(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}
