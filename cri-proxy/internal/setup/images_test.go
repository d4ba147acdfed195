// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
)

// images is a runtime that has its own name as an image.
type images struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	name string
}

func (i images) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: i.name}, nil
}

func (i images) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{Images: []*runtimeapi.Image{{Id: i.name}}}, nil
}

func serve(t *testing.T, dir, name string) string {
	t.Helper()
	at := filepath.Join(dir, name)
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s, images{name: name})
	runtimeapi.RegisterImageServiceServer(s, images{name: name})
	go func() { _ = s.Serve(l) }() // until Stop
	t.Cleanup(s.Stop)
	return at
}

// One socket serves both services: from one runtime over any connection, from two over a connection for each, as the
// kubelet and crictl make them.
func TestImageService(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "im") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	runtime, other := serve(t, dir, "runtime"), serve(t, dir, "other")
	for name, tt := range map[string]struct {
		endpoint, images string
		together         bool
	}{
		"same": {"", "runtime", true}, "same by name": {"unix://" + runtime, "runtime", true}, "another": {other, "other", false},
	} {
		cfg := config.DefaultProxy()
		cfg.RuntimeEndpoint, cfg.ImageEndpoint = runtime, tt.endpoint
		server, err := relay.New((&Daemon{cfg: cfg}).relayConfig())
		if err != nil {
			t.Fatal(err)
		}
		front := filepath.Join(dir, "front "+name)
		l, err := net.Listen("unix", front)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { served <- server.Serve(ctx, l) }()
		dial := func() *grpc.ClientConn {
			c, err := grpc.NewClient("unix:"+front, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		one := dial()
		two := one
		if !tt.together {
			two = dial()
		}
		for range 2 {
			v, err := runtimeapi.NewRuntimeServiceClient(one).Version(t.Context(), &runtimeapi.VersionRequest{})
			if err != nil || v.RuntimeName != "runtime" {
				t.Errorf("%s: version of %v, %v", name, v, err)
			}
			list, err := runtimeapi.NewImageServiceClient(two).ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
			if err != nil || len(list.Images) != 1 || list.Images[0].Id != tt.images {
				t.Errorf("%s: images %v, %v; want those of %s", name, list, err, tt.images)
			}
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		server.Wait()
	}
}
