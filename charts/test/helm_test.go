package charttest

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v3loader "helm.sh/helm/v3/pkg/chart/loader"
	v3util "helm.sh/helm/v3/pkg/chartutil"
	v3engine "helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	v2util "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const (
	chartDir = "../locksidecar"
	kube     = "v1.37.2"
)

// values is a values file, read.
type values map[string]any

// at sets the value at a path of keys with dots between them.
func (v values) at(path string, value any) values {
	here := map[string]any(v)
	keys := strings.Split(path, ".")
	for _, key := range keys[:len(keys)-1] {
		next, ok := here[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			here[key] = next
		}
		here = next
	}
	here[keys[len(keys)-1]] = value
	return v
}

// minimal are the least values that the chart takes.
func minimal() values {
	return values{}.at("redis.addresses", []any{"redis.redis.svc:6379"})
}

func readValues(t *testing.T, path string) values {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v := values{}
	if err := yaml.UnmarshalStrict(data, &v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

// ciValues are the files in the chart's folder ci.
func ciValues(t *testing.T) map[string]values {
	t.Helper()
	paths, err := filepath.Glob(chartDir + "/ci/*-values.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no ci values: %v", err)
	}
	files := map[string]values{}
	for _, path := range paths {
		files[strings.TrimSuffix(filepath.Base(path), "-values.yaml")] = readValues(t, path)
	}
	return files
}

// helm4 renders a chart as Helm 4 does for an install on the Kubernetes version.
func helm4(dir string, v values, kubeVersion string) (map[string]string, error) {
	chart, err := loader.Load(dir)
	if err != nil {
		return nil, err
	}
	if err := v2util.ProcessDependencies(chart, common.Values(v)); err != nil {
		return nil, err
	}
	version, err := common.ParseKubeVersion(kubeVersion)
	if err != nil {
		return nil, err
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion, capabilities.APIVersions = *version, nil
	top, err := util.ToRenderValues(chart, v,
		common.ReleaseOptions{Name: "locksidecar", Namespace: "lock-system", Revision: 1, IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, top)
}

// helm3 is helm4 by Helm 3.
func helm3(dir string, v values, kubeVersion string) (map[string]string, error) {
	chart, err := v3loader.Load(dir)
	if err != nil {
		return nil, err
	}
	if err := v3util.ProcessDependencies(chart, v3util.Values(v)); err != nil {
		return nil, err
	}
	version, err := v3util.ParseKubeVersion(kubeVersion)
	if err != nil {
		return nil, err
	}
	capabilities := v3util.DefaultCapabilities.Copy()
	capabilities.KubeVersion, capabilities.APIVersions = *version, nil
	top, err := v3util.ToRenderValues(chart, v,
		v3util.ReleaseOptions{Name: "locksidecar", Namespace: "lock-system", Revision: 1, IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	return v3engine.Render(chart, top)
}

// render renders the chart by Helm 4; an error fails the test.
func render(t *testing.T, v values) map[string]string {
	t.Helper()
	files, err := helm4(chartDir, v, kube)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// documents are the YAML documents of all rendered manifests, in the order of
// their files' names.
func documents(files map[string]string) [][]byte {
	var all [][]byte
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			all = append(all, split([]byte(files[name]))...)
		}
	}
	return all
}

// split parts a file at the lines that part YAML documents, and leaves out
// documents that hold nothing.
func split(file []byte) [][]byte {
	var all [][]byte
	for _, document := range bytes.Split(append([]byte("\n"), file...), []byte("\n---\n")) {
		var anything any
		if yaml.Unmarshal(document, &anything) != nil || anything != nil {
			all = append(all, document)
		}
	}
	return all
}
