// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"path"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/model/cgrouppath"
	"github.com/koord-rt/koord-rt/model/node"
)

const (
	problemNoCDI    = "CDI devices by CRI need enable_cdi in containerd's configuration, which it does not tell: device nodes are used"
	problemOldCDI   = "CDI devices are not applied by this release: device nodes are used instead"
	problemDocker   = "Docker has no cgroup v2 files in its API: they are written after the container's creation"
	problemSched    = "no scheduler field in CRI: SCHED_IDLE is set after the container's creation"
	problemGuessed  = "runtime is not tested: what it applies is guessed"
	problemTooOld   = "unsupported: release is too old"
	nameContainerd  = "containerd"
	nameCRIO        = "cri-o"
	nameDocker      = "docker"
	firstContainerd = 1*1000 + 6
	firstCRIO       = 1*1000 + 24
)

// Runtime says what a runtime really applies of a CRI request. name and version are those of the Version call
// ("containerd", "v1.7.30"; "cri-o", "1.34.1"; "docker", "27.3.1"). Read from the sources of containerd 1.6.0 to 2.4.2 and
// CRI-O 1.24.0 to 1.36.0. Without Fields the plan's rest is written after the creation.
func Runtime(name, version string) node.Runtime {
	r := node.Runtime{Name: name, Version: version}
	at, known := release(version)
	switch strings.ToLower(name) {
	case nameContainerd:
		r.Fields = node.Fields{OOMScoreAdj: true, Unified: true, CDI: at >= 2*1000, UpdatePod: at >= 2*1000+2}
		known = known && at >= firstContainerd
		switch {
		case at < 1*1000+7:
			r.Problems = append(r.Problems, problemOldCDI)
		case at < 2*1000:
			r.Problems = append(r.Problems, problemNoCDI)
		}
	case nameCRIO:
		r.Fields = node.Fields{OOMScoreAdj: true, Unified: true, CDI: at >= 1*1000+28, UpdatePod: at >= 1*1000+33}
		known = known && at >= firstCRIO
		if !r.Fields.CDI {
			r.Problems = append(r.Problems, problemOldCDI)
		}
	case nameDocker:
		r.Fields = node.Fields{OOMScoreAdj: true}
		r.Problems = append(r.Problems, problemDocker)
	default:
		r.Fields = node.Fields{OOMScoreAdj: true}
		r.Problems = append(r.Problems, problemGuessed)
	}
	if !known {
		r.Fields = node.Fields{}
		r.Problems = []string{problemTooOld + ": " + strconv.QuoteToASCII(name) + " " + strconv.QuoteToASCII(version)}
		return r
	}
	r.Problems = append(r.Problems, problemSched)
	return r
}

// dropsUnified reports whether the runtime ignores the unified map of an update: CRI-O before 1.36.
func dropsUnified(r *node.Runtime) bool {
	if !strings.EqualFold(r.Name, nameCRIO) {
		return false
	}
	at, known := release(r.Version)
	return !known || at < 1*1000+36
}

// release reads "v1.7.30-rc.1" as 1007.
func release(version string) (int, bool) {
	major, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(version), "v"), ".")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	ma, err1 := strconv.ParseUint(major, 10, 16)
	mi, err2 := strconv.ParseUint(rest[:end], 10, 9)
	return int(ma)*1000 + int(mi), ok && err1 == nil && err2 == nil
}

// Cgroup is the directory that a runtime gives a container: name is that of the Version call, pod the sandbox's Cgroup.
// A pod's directory that is a slice means the systemd driver, as for the runtimes themselves. It is "" when it cannot be
// told.
//
//	containerd, "/kubepods/podU"                → "/kubepods/podU/ID"
//	cri-o, "/kubepods.slice/kubepods-podU.slice" → "/kubepods.slice/kubepods-podU.slice/crio-ID.scope"
func Cgroup(name, pod, id string) string {
	if _, err := cgrouppath.Below(pod, id); pod == "" || err != nil {
		return ""
	}
	slice := strings.HasSuffix(path.Base(pod), ".slice")
	unit := ""
	switch strings.ToLower(name) {
	case nameContainerd:
		unit = "cri-containerd-" + id + ".scope"
	case nameCRIO:
		unit = "crio-" + id + ".scope"
	case nameDocker:
		unit = "docker-" + id + ".scope"
	default:
		return ""
	}
	switch {
	case slice:
		return pod + "/" + unit
	case strings.ToLower(name) == nameCRIO:
		return pod + "/crio-" + id
	}
	return pod + "/" + id
}
