// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cgrouppath_test

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/cgrouppath"
)

const slicePod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb1_c2.slice"

func TestContainer(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"/kubepods/burstable/podX/ID":                         "/kubepods/burstable/podX/ID",
		"kubepods/podX/ID":                                    "/kubepods/podX/ID",
		"kubepods-burstable-podb1_c2.slice:cri-containerd:ID": slicePod + "/cri-containerd-ID.scope",
		"kubepods-burstable-podb1_c2.slice:crio:ID":           slicePod + "/crio-ID.scope",
		"a-kubepods-podU.slice:cri-containerd:ID":             "/a.slice/a-kubepods.slice/a-kubepods-podU.slice/cri-containerd-ID.scope",
		":x:ID":                   "/system.slice/x-ID.scope",
		"system.slice::ID":        "/system.slice/ID.scope",
		"-.slice:docker:ID":       "/docker-ID.scope",
		"k.slice:x:k-sub.slice":   "/k.slice/k-sub.slice",
		"/a/../b":                 "",
		"":                        "",
		"/":                       "",
		"a\x00b":                  "",
		"kubepods:x:ID":           "",
		"k.slice:x":               "",
		"k.slice:x:":              "",
		"k.slice:x:../../up":      "",
		"k.slice:../x:ID":         "",
		"k--x.slice:p:ID":         "",
		"-k.slice:p:ID":           "",
		strings.Repeat("a", 5000): "",
		strings.Repeat("a-", 99) + "b.slice:p:ID": "",
	} {
		got, err := cgrouppath.Container(in)
		if got != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, cgrouppath.ErrPath) {
			t.Errorf("Container(%.60q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestParent(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"/kubepods/besteffort/podX":           "/kubepods/besteffort/podX",
		"kubepods-burstable-podb1_c2.slice":   slicePod,
		slicePod:                              slicePod,
		"/elsewhere/kubepods-podU.slice":      "/kubepods.slice/kubepods-podU.slice",
		"/kubelet/kubepods/podU/":             "/kubelet/kubepods/podU",
		"../../etc":                           "",
		"/kubepods/..":                        "",
		"/x/--.slice":                         "",
		"/kubepods.slice/a:b-kubepods.slice/": "/kubepods.slice/a:b-kubepods.slice",
	} {
		if got, err := cgrouppath.Parent(in); got != want || (err == nil) != (want != "") {
			t.Errorf("Parent(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

// The parent that the kubelet asked for counts, also where the sandbox itself would say another; a wrong one is no reason to
// look further.
func TestSandbox(t *testing.T) {
	t.Parallel()
	const own = "kubepods-podU.slice:cri-containerd:ID"
	for in, want := range map[[2]string]string{
		{"kubepods-burstable-podb1_c2.slice", own}: slicePod,
		{"/kubepods/podU", ""}:                     "/kubepods/podU",
		{"", own}:                                  "/kubepods.slice/kubepods-podU.slice",
		{"", "/kubepods/podU/ID"}:                  "/kubepods/podU",
		{"../up", own}:                             "",
		{"", ""}:                                   "",
		{"", "k.slice:x"}:                          "",
	} {
		got, err := cgrouppath.Sandbox(in[0], in[1])
		if got != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, cgrouppath.ErrPath) {
			t.Errorf("Sandbox(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestBelow(t *testing.T) {
	t.Parallel()
	for in, want := range map[[2]string]string{
		{"/kubepods/podU", "c1"}:         "/kubepods/podU/c1",
		{"kubepods/podU", "c1..2"}:       "/kubepods/podU/c1..2",
		{"", "c1"}:                       "/c1",
		{"/kubepods/podU", ""}:           "",
		{"/kubepods/podU", "."}:          "",
		{"/kubepods/podU", ".."}:         "",
		{"/kubepods/podU", "a/b"}:        "",
		{"/kubepods/podU", "a:b"}:        "",
		{"/kubepods/podU", "a\x00b"}:     "",
		{"/kubepods/../podU", "c1"}:      "",
		{strings.Repeat("a", 4095), "b"}: "",
	} {
		got, err := cgrouppath.Below(in[0], in[1])
		if got != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, cgrouppath.ErrPath) {
			t.Errorf("Below(%.60q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestOfPod(t *testing.T) {
	t.Parallel()
	tests := map[string]cgrouppath.Pod{
		"/kubepods/podG":                        {UID: "G", QoS: protocol.KubeGuaranteed, QoSCgroup: "/kubepods", Root: "/kubepods"},
		"/kubepods/burstable/podB":              {UID: "B", QoS: protocol.KubeBurstable, QoSCgroup: "/kubepods/burstable", Root: "/kubepods"},
		"/x/kubepods/besteffort/podE":           {UID: "E", QoS: protocol.KubeBestEffort, QoSCgroup: "/x/kubepods/besteffort", Root: "/x/kubepods"},
		slicePod:                                {UID: "b1-c2", QoS: protocol.KubeBurstable, QoSCgroup: "/kubepods.slice/kubepods-burstable.slice", Root: "/kubepods.slice", Systemd: true},
		"/kubepods.slice/kubepods-podu_1.slice": {UID: "u-1", QoS: protocol.KubeGuaranteed, QoSCgroup: "/kubepods.slice", Root: "/kubepods.slice", Systemd: true},
		"/a.slice/a-kubepods.slice/a-kubepods-besteffort.slice/a-kubepods-besteffort-podu.slice": {UID: "u", QoS: protocol.KubeBestEffort,
			QoSCgroup: "/a.slice/a-kubepods.slice/a-kubepods-besteffort.slice", Root: "/a.slice/a-kubepods.slice", Systemd: true},
	}
	for dir, want := range tests {
		if got, ok := cgrouppath.OfPod(dir); !ok || got != want {
			t.Errorf("OfPod(%q) = %+v, %v; want %+v", dir, got, ok, want)
		}
	}
	for _, dir := range []string{"", "/", "/podX", "/docker/podX", "/kubepods", "/kubepods/pod", "/system.slice/x.service", "/kubepods.slice/kubepods-pod.slice",
		"/wrong.slice/kubepods-podu.slice", "/kubepods.slice/kubepods-burstable.slice"} {
		if got, ok := cgrouppath.OfPod(dir); ok {
			t.Errorf("OfPod(%q) = %+v, want none", dir, got)
		}
	}
}

// FuzzContainer: whatever comes in, a path that comes out is clean, absolute and below the root.
func FuzzContainer(f *testing.F) {
	f.Add("/kubepods/podX/ID")
	f.Add("kubepods-podX.slice:cri-containerd:ID")
	f.Add("a/../../b")
	f.Fuzz(func(t *testing.T, in string) {
		for _, expand := range []func(string) (string, error){cgrouppath.Container, cgrouppath.Parent} {
			got, err := expand(in)
			if err != nil {
				continue
			}
			if got != path.Clean(got) || got[0] != '/' || strings.Contains(got, "\x00") || strings.Contains("/"+got+"/", "/../") {
				t.Fatalf("%q gave %q", in, got)
			}
			if p, ok := cgrouppath.OfPod(got); ok && (p.UID == "" || !strings.HasPrefix(got, p.QoSCgroup+"/")) {
				t.Fatalf("%q gave %+v", got, p)
			}
		}
	})
}
