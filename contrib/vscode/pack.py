#!/usr/bin/env python3
"""pack.py VSIX PACKAGE.JSON FILE...: an extension as VS Code installs it, as vsce makes one, which needs npm."""
import json
import pathlib
import sys
import xml.sax.saxutils
import zipfile

MANIFEST = """<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011" \
xmlns:d="http://schemas.microsoft.com/developer/vsx-schema-design/2011">
  <Metadata>
    <Identity Language="en-US" Id={name} Version={version} Publisher={publisher}/>
    <DisplayName>{display}</DisplayName>
    <Description xml:space="preserve">{description}</Description>
    <Tags>{tags}</Tags>
    <Categories>{categories}</Categories>
    <GalleryFlags>Public</GalleryFlags>
    <Properties>
      <Property Id="Microsoft.VisualStudio.Code.Engine" Value={engine}/>
      <Property Id="Microsoft.VisualStudio.Code.ExtensionKind" Value={kind}/>
    </Properties>
  </Metadata>
  <Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation>
  <Dependencies/>
  <Assets>
    <Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/>
    <Asset Type="Microsoft.VisualStudio.Services.Content.Details" Path="extension/README.md" Addressable="true"/>
  </Assets>
</PackageManifest>
"""
TYPES = """<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
  <Default Extension=".js" ContentType="application/javascript"/>
  <Default Extension=".json" ContentType="application/json"/>
  <Default Extension=".md" ContentType="text/markdown"/>
  <Default Extension=".vsixmanifest" ContentType="text/xml"/>
</Types>
"""


def manifest(package):
    quoted, escaped = xml.sax.saxutils.quoteattr, xml.sax.saxutils.escape
    return MANIFEST.format(
        name=quoted(package["name"]), version=quoted(package["version"]), publisher=quoted(package["publisher"]),
        engine=quoted(package["engines"]["vscode"]), kind=quoted(",".join(package["extensionKind"])),
        display=escaped(package["displayName"]), description=escaped(package["description"]),
        tags=escaped(",".join(package["keywords"])), categories=escaped(",".join(package["categories"])))


def main(out, *files):
    package = json.loads(pathlib.Path(files[0]).read_text())
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        def add(name, text):  # with no time in it: the same is the same
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
        add("extension.vsixmanifest", manifest(package))
        add("[Content_Types].xml", TYPES)
        for file in map(pathlib.Path, files):
            add(f"extension/{file.name}", file.read_text())


main(*sys.argv[1:])
