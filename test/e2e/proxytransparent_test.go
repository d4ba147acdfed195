// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// wide lets the runtime take and give messages beyond gRPC's and the kubelet's 16 MiB.
var wide = host.Options{DisableNRI: true, DropIns: map[string]string{
	"wide.toml": fmt.Sprintf("version = 3\n[grpc]\nmax_recv_message_size = %d\nmax_send_message_size = %d\n", runtimeTakes, runtimeTakes),
}}

const runtimeTakes = 64 << 20

// proxyTransparent asks the real runtime everything that a CRI client can, directly and through the proxy: replies, status with its
// details, headers and trailers are the same, and so is what the runtime sees of deadlines and of clients that go.
func proxyTransparent(p *viaProxy) {
	p.upProxy(standard, nil)
	run := p.pod(bePod("transparent"))
	w := wires{p: p, direct: p.raw(p.host.Socket), proxied: p.raw(p.socket)}
	w.everyMethod(run)
	w.runtimesOwn()
	w.large(run)
	w.events()
	w.deadline(run)
	w.cancelled(run)
}

// wires are two ways to one runtime.
type wires struct {
	p               *viaProxy
	direct, proxied *grpc.ClientConn
}

// answer is what a client sees of a call.
type answer struct {
	Header, Trailer metadata.MD
	Status          string // with code and details
	Replies         [][]byte
}

func (a answer) code() string { code, _, _ := strings.Cut(a.Status, " "); return code }

// ask makes a call with one message; the runtime sends one or more.
func (w wires) ask(c *grpc.ClientConn, path string, message []byte, md ...string) (a answer) {
	w.p.t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(w.p.t.Context(), md...), patience(time.Minute))
	defer cancel()
	const most = 2 * runtimeTakes
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path, grpc.MaxCallRecvMsgSize(most), grpc.MaxCallSendMsgSize(most))
	if err == nil {
		if err = s.SendMsg(&message); err == nil {
			err = s.CloseSend()
		}
	}
	if err != nil && !errors.Is(err, io.EOF) { // which says that the answer came before the end of the message
		w.p.t.Fatalf("%s: %v", path, err)
	}
	for err = nil; err == nil; {
		var reply []byte
		if err = s.RecvMsg(&reply); err == nil {
			a.Replies = append(a.Replies, reply)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	a.Status, a.Trailer = whole(err), s.Trailer()
	a.Header, _ = s.Header() // its error is the status
	return a
}

// whole is a status with all that is in it.
func whole(err error) string {
	st := status.Convert(err)
	text := st.Code().String() + " " + st.Message()
	for _, d := range st.Proto().GetDetails() {
		text += fmt.Sprintf(" %s %x", d.GetTypeUrl(), d.GetValue())
	}
	return text
}

// same asks both ways and returns the answer through the proxy. steady is false for replies with the time in them.
func (w wires) same(path string, message []byte, steady bool, md ...string) answer {
	w.p.t.Helper()
	want, got := w.ask(w.direct, path, message, md...), w.ask(w.proxied, path, message, md...)
	if len(want.Replies) != len(got.Replies) {
		w.p.t.Errorf("%s: %d replies through the proxy, %d without", path, len(got.Replies), len(want.Replies))
	}
	compared := got
	if want.Replies, compared.Replies = canonical(path, want.Replies), canonical(path, got.Replies); !steady {
		want.Replies, compared.Replies = nil, nil
	}
	if d := cmp.Diff(want, compared); d != "" {
		w.p.t.Errorf("%s with %d bytes (-direct +through the proxy):\n%.2000s", path, len(message), d)
	}
	return got
}

// criMethods are all that the CRI of today has, by path.
func criMethods() map[string]protoreflect.MethodDescriptor {
	out := map[string]protoreflect.MethodDescriptor{}
	services := runtimeapi.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			out["/"+string(services.Get(i).FullName())+"/"+string(methods.Get(j).Name())] = methods.Get(j)
		}
	}
	return out
}

// canonical orders the maps in replies, which the runtime writes in any order, and shortens large ones.
func canonical(path string, replies [][]byte) (out [][]byte) {
	method := criMethods()[path]
	for _, raw := range replies {
		if method != nil {
			m := dynamicpb.NewMessage(method.Output())
			if err := proto.Unmarshal(raw, m); err == nil {
				if text, err := (proto.MarshalOptions{Deterministic: true}).Marshal(m); err == nil {
					raw = text
				}
			}
		}
		if len(raw) > 1<<16 {
			hash := sha256.Sum256(raw)
			raw = hash[:]
		}
		out = append(out, raw)
	}
	return out
}

// unread is a field that no CRI has, of n bytes.
func unread(n int) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, 5000, protowire.BytesType), bytes.Repeat([]byte{'x'}, n))
}

func field1(text string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), text)
}

// everyMethod: each method of both services, those that stream too, with nothing, with a field of a version to come, and with an id
// that nobody has; and names of methods that nobody has.
func (w wires) everyMethod(run *kubelet.Running) {
	paths := []string{
		"/runtime.v1.RuntimeService/NoSuchMethod", "/runtime.v1.RuntimeService/StreamNoSuchThings", "/runtime.v1.ImageService/NoSuchMethod",
		"/runtime.v2.RuntimeService/RunPodSandbox", "/runtime.v1alpha2.RuntimeService/CreateContainer", "/somebody.else/Does",
	}
	for path := range criMethods() {
		paths = append(paths, path)
	}
	items, detailed := 0, 0
	for _, path := range paths {
		name := path[strings.LastIndexByte(path, '/')+1:]
		if name == "GetContainerEvents" || name == "RemoveImage" { // one does not end, the other removes an image where none is named
			continue
		}
		steady := !strings.Contains(name, "Stats") && !strings.Contains(name, "Metric") && name != "ImageFsInfo"
		requests := [][]byte{unread(100), {}, append(field1("nobody"), unread(100)...)}
		for _, r := range requests[:rounds(len(requests))] {
			a := w.same(path, r, steady)
			if strings.Contains(a.Status, " type.googleapis.com/") {
				detailed++
			}
			if strings.HasPrefix(name, "Stream") && a.code() == "OK" {
				items += len(a.Replies)
			}
			if strings.Contains(name, "NoSuch") && a.code() != codes.Unimplemented.String() {
				w.p.t.Errorf("%s: %s", path, a.Status)
			}
		}
	}
	if items == 0 {
		w.p.t.Error("no stream had a message: this shows nothing of streams")
	}
	for method, id := range map[string]string{"ContainerStatus": run.Containers["main"], "PodSandboxStatus": run.SandboxID} {
		if a := w.same("/runtime.v1.RuntimeService/"+method, field1(id), true); a.code() != "OK" {
			w.p.t.Errorf("%s: %s", method, a.Status)
		}
	}
	w.p.t.Logf("%d methods, %d messages of streams, %d answers with details in their status", len(paths), items, detailed)
}

// runtimesOwn: containerd's own API is on the same socket, and what it answers hangs on a call's metadata.
func (w wires) runtimesOwn() {
	const path = "/containerd.services.containers.v1.Containers/List"
	without, with := w.same(path, nil, false), w.same(path, nil, false, "containerd-namespace", "k8s.io")
	if without.code() == "OK" || with.code() != "OK" || len(with.Replies) == 0 || len(with.Replies[0]) == 0 {
		w.p.t.Errorf("%s: %s, with a namespace in the metadata %s: metadata make no difference", path, without.Status, with.Status)
	}
}

// large: messages to the runtime and from it, beyond 16 MiB, beyond what the proxy decodes, beyond what the runtime takes.
func (w wires) large(run *kubelet.Running) {
	if emulated() { // where each MiB takes its time, and the kernel makes no difference
		return
	}
	const half = 15 << 20
	for _, n := range []int{16<<20 - 100, 24 << 20, 40 << 20, runtimeTakes + 1} {
		list := w.same("/runtime.v1.RuntimeService/ListContainers", unread(n), true)
		create := w.same("/runtime.v1.RuntimeService/CreateContainer", append(field1("nobody"), unread(n)...), true)
		if tooMuch := codes.ResourceExhausted.String(); (n > runtimeTakes) != (list.code() == tooMuch) || (n > runtimeTakes) != (create.code() == tooMuch) {
			w.p.t.Errorf("%d bytes: %.200s, %.200s", n, list.Status, create.Status)
		}
	}
	says := &runtimeapi.ExecSyncRequest{ContainerId: run.Containers["main"], Cmd: []string{"sh", "-c", fmt.Sprintf("head -c %d /dev/zero; head -c %[1]d /dev/zero >&2", half)}}
	raw, err := proto.Marshal(says)
	if err != nil {
		w.p.t.Fatal(err)
	}
	if a := w.same("/runtime.v1.RuntimeService/ExecSync", raw, true); len(a.Replies) != 1 || len(a.Replies[0]) < 2*half {
		w.p.t.Errorf("ExecSync of much: %.200s, %d replies", a.Status, len(a.Replies))
	}
}
