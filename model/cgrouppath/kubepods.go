// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cgrouppath

import (
	"path"
	"strings"
)

// The kubelet's top cgroup by driver.
const (
	kubepodsSlice = "/kubepods.slice"
	kubepodsPlain = "/kubepods"
)

// Kubepods is the kubelet's top cgroup with either driver, below its --cgroup-root. With systemd's a root is a slice,
// named by its own path or by its last element: "/x" and "/x.slice" have /x.slice/x-kubepods.slice.
func Kubepods(root string) (slice, plain string) {
	root = path.Clean("/" + root)
	plain = path.Join(root, kubepodsPlain)
	if root == "/" {
		return kubepodsSlice, plain
	}
	stem, named := strings.CutSuffix(path.Base(root), ".slice")
	if !named {
		// The kubelet joins the elements with dashes, and escapes those that they have.
		stem = strings.ReplaceAll(strings.ReplaceAll(root[1:], "-", "_"), "/", "-")
	}
	slice, err := Slice(stem + "-kubepods.slice")
	if err != nil {
		return path.Join(root, kubepodsSlice), plain
	}
	return slice, plain
}

// OfUID are the directories that the kubelet may give a pod, by its UID and the top cgroup below its --cgroup-root: with either
// driver, one for each QoS class. There are none for a UID that is no name.
//
//	"", "b1-c2"  → "/kubepods.slice/kubepods-podb1_c2.slice", …, "/kubepods/besteffort/podb1-c2"
func OfUID(root, uid string) []string {
	if uid == "" || len(uid) > maxUID || strings.ContainsAny(uid, "/:\x00") {
		return nil
	}
	slice, plain := Kubepods(root)
	stem := strings.TrimSuffix(path.Base(slice), ".slice")
	out := make([]string, 0, 2*len(qosNames))
	for _, qos := range qosNames {
		if qos == "" {
			out = append(out, slice+"/"+stem+podName+strings.ReplaceAll(uid, "-", "_")+".slice", plain+"/pod"+uid)
			continue
		}
		class := stem + "-" + qos
		out = append(out, slice+"/"+class+".slice/"+class+podName+strings.ReplaceAll(uid, "-", "_")+".slice", plain+"/"+qos+"/pod"+uid)
	}
	return out
}

const (
	podName = "-pod"
	// maxUID is above every UID: those of the API have 36 characters.
	maxUID = 128
)

// qosNames are the parts of a name that tell the class; a Guaranteed pod's has none.
var qosNames = [...]string{"", "burstable", "besteffort"}
