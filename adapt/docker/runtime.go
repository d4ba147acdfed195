// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import "github.com/koord-rt/koord-rt/model/node"

// RuntimeName is Docker's name in node.Runtime.
const RuntimeName = "docker"

// What Docker's API lacks; each is written after the start.
const (
	problemFiles = "Docker has no field for cgroup files, resctrl and CPU burst: they are written right after the start"
	problemCDI   = "CDI devices by Docker's API need its release 28 or features.cdi, which it does not tell: device nodes are used"
)

// Runtime says what a Docker daemon applies of a create request. version is that of its Version reply. The fields are the
// same from API 1.24 on; CDI is for the configuration to switch on.
func Runtime(version string) node.Runtime {
	return node.Runtime{
		Name: RuntimeName, Version: version,
		Fields:   node.Fields{OOMScoreAdj: true},
		Problems: []string{problemFiles, problemCDI},
	}
}

// Cgroup is the directory of a container: parent is its pod's, a slice with the systemd driver. It is "" when it cannot
// be told.
//
//	"/kubepods/podU"                            → "/kubepods/podU/ID"
//	"/kubepods.slice/kubepods-podU.slice"       → "/kubepods.slice/kubepods-podU.slice/docker-ID.scope"
func Cgroup(parent, id string) string {
	in := Inspect{ID: id}
	in.HostConfig.CgroupParent = parent
	return in.cgroup()
}
