// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooktest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
)

// Answer answers one call: the hook's name and the request as a tree, the answer as a tree.
type Answer func(ctx context.Context, hook string, asked map[string]any) (map[string]any, error)

// Serve runs a hook server on gRPC's own library until the test ends or it is stopped, and returns its address.
func Serve(t testing.TB, network, address string, answer Answer) (*grpc.Server, string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	types := New(t)
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		name := strings.TrimSuffix(strings.TrimPrefix(method, "/"+pkg+".RuntimeHookService/"), "Hook")
		message := "ContainerResourceHook"
		if strings.HasSuffix(name, "PodSandbox") {
			message = "PodSandboxHook"
		}
		in, out := types.Message(message+"Request"), types.Message(message+"Response")
		if err := stream.RecvMsg(in); err != nil {
			return err
		}
		tree, err := answer(stream.Context(), name, Tree(in))
		if err != nil {
			return err
		}
		Set(out, tree)
		return stream.SendMsg(out)
	}))
	go func() { _ = s.Serve(l) }() // until Stop
	t.Cleanup(s.Stop)
	return s, l.Addr().String()
}

// Register writes the file NAME.json that koordlet would, in one step.
func Register(t testing.TB, dir, name, endpoint, policy string, hooks ...string) {
	t.Helper()
	quoted := make([]string, 0, len(hooks))
	for _, h := range hooks {
		quoted = append(quoted, fmt.Sprintf("%q", h))
	}
	text := fmt.Sprintf("{\n\t\"remote-endpoint\": %q,\n\t\"failure-policy\": %q,\n\t\"runtime-hooks\": [%s]\n}",
		endpoint, policy, strings.Join(quoted, ","))
	Write(t, dir, name+".json", text)
}

// Write puts a file in place in one step, as an editor does.
func Write(t testing.TB, dir, name, content string) {
	t.Helper()
	tmp := filepath.Join(dir, "."+name+".tmp")
	if err := os.WriteFile(tmp, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}
