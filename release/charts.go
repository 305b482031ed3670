package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
)

// semver is a version as charts must have it, with a v before it that they have
// not.
var semver = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// chartVersion is the version of the charts that belong to the program's.
func chartVersion(version string) string {
	if semver.MatchString(version) {
		return version[1:]
	}
	return "0.0.0-g" + strings.ReplaceAll(version, "_", "-")
}

// charts packages the charts as helm package does, with the version of the
// release, and with no time in them.
func (b builder) charts(folder string) error {
	found, err := filepath.Glob(filepath.Join(b.root, "charts/*/Chart.yaml"))
	if err != nil {
		return err
	}
	for _, file := range found {
		loaded, err := loader.Load(filepath.Dir(file))
		if err != nil {
			return fmt.Errorf("chart %s: %w", filepath.Dir(file), err)
		}
		loaded.Metadata.Version = chartVersion(b.version)
		if loaded.Metadata.AppVersion != "" {
			loaded.Metadata.AppVersion = b.version // which is the tag of the image
		}
		timeless(loaded)
		if _, err := util.Save(loaded, folder); err != nil {
			return fmt.Errorf("chart %s: %w", loaded.Name(), err)
		}
	}
	return nil
}

func timeless(c *chart.Chart) {
	c.ModTime, c.SchemaModTime = time.Time{}, time.Time{}
	if c.Lock != nil {
		c.Lock.Generated = time.Time{}
	}
	for _, files := range [][]*common.File{c.Raw, c.Templates, c.Files} {
		for _, f := range files {
			f.ModTime = time.Time{}
		}
	}
	for _, dependency := range c.Dependencies() {
		timeless(dependency)
	}
}
